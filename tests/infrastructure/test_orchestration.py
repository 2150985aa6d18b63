"""The workflow is deployed as the repository has it, and everybody in it may do their own part alone."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from tests.infrastructure.assembly import example
from tests.infrastructure.serverless import configuration, deployed, listed, text
from trainflow.state_machines import definition_json
from trainflow.workflow import compile_cache
from trainflow.workflow import run_table as runs

MACHINES = {"blue-training": "training", "blue-watch-job": "watch_job"}

each_machine = pytest.mark.parametrize("name", MACHINES)

ORCHESTRATION, TRIGGERS = "trainflow-orchestration", "trainflow-triggers"
INVOKE, STOP = "lambda:InvokeFunction", "states:StopExecution"
RESIZERS = {"EnsureCapacity", "TearDown", "CleanUp", "SurveyFleet"}


def machine_id(name: str) -> str:
    machines = deployed().properties("AWS::StepFunctions::StateMachine")
    return next(logical_id for logical_id, found in machines.items() if found["StateMachineName"] == name)


def machine(name: str) -> dict[str, Any]:
    return deployed().properties("AWS::StepFunctions::StateMachine")[machine_id(name)]


def role_of(name: str) -> str:
    return deployed().find(machine(name)["RoleArn"])


# The definitions


@each_machine
def test_the_definition_is_the_text_of_the_repository(name: str) -> None:
    assert machine(name)["DefinitionString"] == definition_json(MACHINES[name])


@each_machine
def test_every_placeholder_is_filled_and_nothing_is_filled_in_vain(name: str) -> None:
    placeholders = set(re.findall(r"\$\{(\w+)\}", machine(name)["DefinitionString"]))
    assert set(machine(name)["DefinitionSubstitutions"]) == placeholders


@each_machine
def test_a_placeholder_leads_to_the_function_of_its_name(name: str) -> None:
    for placeholder, reference in machine(name)["DefinitionSubstitutions"].items():
        if placeholder != "WatchJob":
            assert deployed().name_of(reference) == placeholder
            assert deployed().resources("AWS::Lambda::Version").get(reference["Ref"]), "a run keeps its versions"


def test_the_run_watches_with_a_version_of_the_other_state_machine_that_outlives_updates() -> None:
    [(logical_id, version)] = deployed().resources("AWS::StepFunctions::StateMachineVersion").items()
    assert machine("blue-training")["DefinitionSubstitutions"]["WatchJob"] == {"Ref": logical_id}
    assert (version["DeletionPolicy"], version["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")
    revision = {"Fn::GetAtt": [machine_id("blue-watch-job"), "StateMachineRevisionId"]}
    assert version["Properties"]["StateMachineRevisionId"] == revision, "a new text is a new version"
    watch_job = deployed().properties("AWS::StepFunctions::StateMachine")[
        deployed().find(machine("blue-training")["DefinitionSubstitutions"]["WatchJob"])
    ]
    assert watch_job["StateMachineName"] == "blue-watch-job"


@each_machine
def test_a_function_gives_up_before_its_task_does(name: str) -> None:
    substitutions = machine(name)["DefinitionSubstitutions"]
    states = json.loads(machine(name)["DefinitionString"])["States"]
    tasks = {state: task for state, task in states.items() if task["Type"] == "Task"}
    for state, task in tasks.items():
        placeholder = task["Parameters"].get("FunctionName", "").strip("${}")
        if placeholder:
            function = deployed().functions()[deployed().name_of(substitutions[placeholder])]
            assert function["Timeout"] < task["TimeoutSeconds"], state


@each_machine
def test_every_event_is_logged_and_no_data_is(name: str) -> None:
    assert machine(name)["StateMachineType"] == "STANDARD"
    logging = machine(name)["LoggingConfiguration"]
    assert (logging["Level"], logging["IncludeExecutionData"]) == ("ALL", False)
    group = deployed().find(logging["Destinations"][0]["CloudWatchLogsLogGroup"]["LogGroupArn"])
    assert text(deployed().properties("AWS::Logs::LogGroup")[group]["LogGroupName"]).startswith("/aws/vendedlogs/")
    assert machine(name)["TracingConfiguration"] == {"Enabled": True}


@each_machine
def test_the_history_is_encrypted_with_the_deployments_key(name: str) -> None:
    encryption = machine(name)["EncryptionConfiguration"]
    assert encryption["Type"] == "CUSTOMER_MANAGED_KMS_KEY"
    assert deployed().find(encryption["KmsKeyId"]) in deployed().resources("AWS::KMS::Key")
    assert role_of(name) in deployed().who_may("kms:GenerateDataKey")


# Who may do what


@each_machine
def test_a_state_machine_invokes_every_version_of_the_functions_that_it_names_and_no_other(name: str) -> None:
    named = {
        f"<{deployed().find(reference)}>:*"
        for placeholder, reference in machine(name)["DefinitionSubstitutions"].items()
        if placeholder != "WatchJob"
    }
    invoked = {arn for who, action, arn, _ in deployed().grants() if (who, action) == (role_of(name), INVOKE)}
    assert invoked == named


def test_only_start_run_may_start_a_run() -> None:
    assert deployed().who_may("states:StartExecution", on=machine_id("blue-training")) == {"StartRun"}


def test_only_a_run_may_start_or_stop_the_watching_of_a_job() -> None:
    training = {role_of("blue-training")}
    assert deployed().who_may("states:StartExecution", on=machine_id("blue-watch-job")) == training
    assert deployed().who_may("states:StopExecution") == training
    assert all(":execution:blue-watch-job:*" in arn for _, action, arn, _ in deployed().grants() if action == STOP)


def test_who_may_resize_node_groups_and_which() -> None:
    assert deployed().who_may("eks:UpdateNodegroupConfig") == RESIZERS
    for _, action, arn, _ in deployed().grants():
        if action in ("eks:UpdateNodegroupConfig", "eks:DescribeNodegroup"):
            assert arn.endswith(":nodegroup/theirs/trainflow-*/*")


WRITERS = ("CollectDiagnostics", "TearDown", "PublishMetrics", "WriteRecord", "CleanUp")
"""Functions that write the objects beside a run's artifacts; a pod writes the artifacts themselves."""


def test_who_may_read_what_runs_did() -> None:
    assert deployed().who_may("states:GetExecutionHistory") == {"WriteRecord", "CleanUp"}
    read = {arn.rsplit(":execution:", 1)[-1] for _, action, arn, _ in deployed().grants() if action.endswith("History")}
    assert read == {"blue-training:*", "blue-watch-job:*"}


def test_who_may_read_metrics_of_nodes() -> None:
    for action in ("cloudwatch:ListMetrics", "cloudwatch:GetMetricData"):
        assert deployed().who_may(action) == {"WriteRecord", "CleanUp"}


def test_who_may_read_and_write_objects_and_which() -> None:
    may = {
        (who, action, arn.split("/", 1)[-1])
        for who, action, arn, _ in deployed().grants()
        if action.startswith("s3:") and action != "s3:ListBucket"
    }
    assert may == {
        ("Preflight", "s3:GetObject", "data/*"),
        ("StartRun", "s3:GetObject", "runs/*"),
        ("StartRun", "s3:GetObjectVersion", "runs/*"),
        ("ReportLostRequest", "s3:GetObject", "runs/*"),
        ("Notify", "s3:GetObject", "runs/*/run.json"),
        *(("ReportLostRequest", "s3:PutObject", f"runs/*.{ending}.refused.txt") for ending in ("yaml", "yml", "json")),
        *(
            (who, "s3:GetObject", "runs/*/steps.json")
            for who in ("PublishMetrics", "TearDown", "WriteRecord", "CleanUp")
        ),
        *(
            (who, "s3:GetObject", "runs/*/rank0/*")
            for who in ("LocateRank0", "PublishArtifacts", "TearDown", "CleanUp")
        ),
        ("PollJob", "s3:PutObject", "runs/*/logs/*"),
        *((who, "s3:GetObject", "runs/*/logs/*") for who in ("CollectDiagnostics", "TearDown", "CleanUp")),
        *((who, "s3:PutObject", "runs/*") for who in WRITERS),
        *(
            ("StartRun", f"s3:{action}", f"runs/*.{ending}.refused.txt")
            for action in ("PutObject", "DeleteObject")
            for ending in ("yaml", "yml", "json")
        ),
    }


def test_who_may_check_objects_and_only_among_data_sets() -> None:
    assert deployed().who_may("s3:ListBucket") == {"Preflight"}
    for _, action, arn, statement in deployed().grants():
        if action == "s3:ListBucket":
            assert statement["Condition"] == {"StringLike": {"s3:prefix": "data/*"}}
            assert "Data" in arn


def test_only_stage_data_may_import_names_and_only_into_the_deployments_file_system() -> None:
    template = example()[ORCHESTRATION]["Resources"]
    variables = {
        function["Properties"]["FunctionName"].removeprefix("trainflow-"): function["Properties"]["Environment"]
        for function in template.values()
        if function["Type"] == "AWS::Lambda::Function"
    }
    (file_system,) = {
        json.dumps(named["Variables"]["LINKED_FILE_SYSTEM"])
        for named in variables.values()
        if "LINKED_FILE_SYSTEM" in named["Variables"]
    }
    granted = {
        (name, action, json.dumps(resource).replace(file_system, "OURS"))
        for name, role in template.items()
        if role["Type"] == "AWS::IAM::Role"
        for policy in role["Properties"].get("Policies", ())
        for statement in policy["PolicyDocument"]["Statement"]
        for action in listed(statement["Action"])
        for resource in listed(statement["Resource"])
        if action.startswith("fsx:")
    }
    assert {name[: len("StageData")] for name, _, _ in granted} == {"StageData"}
    assert sorted((action, resource.split(":")[-1]) for _, action, resource in granted) == [
        ("fsx:CreateDataRepositoryTask", 'file-system/", OURS]]}'),
        ("fsx:CreateDataRepositoryTask", 'task/*"]]}'),
    ]
    (reads,) = (name for name, each in template.items() if "DescribeDataRepositoryTasks" in json.dumps(each))
    readers = {
        name[: len("StageData")]
        for name, role in template.items()
        if role["Type"] == "AWS::IAM::Role" and {"Ref": reads} in role["Properties"].get("ManagedPolicyArns", ())
    }
    assert readers == {"StageData"}


def test_without_a_file_system_of_its_own_a_deployment_links_nothing() -> None:
    assert deployed().who_may("fsx:CreateDataRepositoryTask") == set()
    linked = [deployed().functions()[name]["Environment"]["Variables"] for name in ("ValidateRun", "StageData")]
    assert all((found["LINKED_FILE_SYSTEM"], found["LINKED_URL"]) == ("", "") for found in linked)


def test_only_preflight_may_ask_for_offerings_quotas_and_their_use() -> None:
    read_only = ("ec2:DescribeInstanceTypeOfferings", "servicequotas:GetServiceQuota", "cloudwatch:GetMetricStatistics")
    assert {who for action in read_only for who in deployed().who_may(action)} == {"Preflight"}
    assert "Preflight" not in deployed().who_may("eks:UpdateNodegroupConfig")


def test_who_may_publish_metrics_and_where() -> None:
    publishers = {"PublishMetrics", "StageData", "SurveyFleet", "TearDown"}
    assert deployed().who_may("cloudwatch:PutMetricData") == publishers
    for _, action, _, statement in deployed().grants():
        if action == "cloudwatch:PutMetricData":
            assert statement["Condition"] == {"StringEquals": {"cloudwatch:namespace": "Trainflow"}}


def test_the_record_of_a_run_is_written_by_few_functions_and_deleted_by_none() -> None:
    assert deployed().who_may("dynamodb:PutItem", on="Runs") == {"ValidateRun", "SurveyFleet", "StartRun"}
    writers = {"Notify", "CleanUp", "StartRun", "ReportLostRequest", "ValidateRun", "SurveyFleet"}
    assert deployed().who_may("dynamodb:UpdateItem", on="Runs") == writers
    limits = [
        statement.get("Condition")
        for who, action, _, statement in deployed().grants()
        if who == "StartRun" and action in ("dynamodb:PutItem", "dynamodb:UpdateItem")
    ]
    own = {"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["#schedule *", "#notice *"]}}
    assert limits == [own, own], "items of schedules and messages, beside the runs"
    for function in ("SurveyFleet", "ReportLostRequest"):
        of_messages = [
            statement.get("Condition")
            for who, action, _, statement in deployed().grants()
            if (who, action) == (function, "dynamodb:UpdateItem")
        ]
        assert of_messages == [{"ForAllValues:StringLike": {"dynamodb:LeadingKeys": ["#notice *"]}}]
    assert deployed().who_may("dynamodb:DeleteItem", on="Runs") == set()


def test_leases_are_taken_by_one_function_and_released_by_those_that_clean_up() -> None:
    assert deployed().who_may("dynamodb:PutItem", on="Caches") == {"AcquireCache"}
    assert deployed().who_may("dynamodb:UpdateItem", on="Caches") == {"AcquireCache", "CheckCompilation"}
    assert deployed().who_may("dynamodb:DeleteItem", on="Caches") == {
        "AcquireCache",
        "TearDown",
        "CleanUp",
        "SurveyFleet",
    }
    assert deployed().who_may("states:DescribeExecution", on="blue-training:*") >= {"AcquireCache"}


def test_the_survey_may_ask_whether_a_run_goes_on() -> None:
    assert "SurveyFleet" in deployed().who_may("states:DescribeExecution", on="blue-training:*")


def test_nothing_is_allowed_on_everything_but_what_has_no_resource() -> None:
    # What each of these is for, and why IAM cannot narrow it, stands in stacks/orchestration/permissions.py.
    allowed = ("xray:", "cloudwatch:PutMetricData", "ec2:", "logs:", "servicequotas:Get", "cloudwatch:GetMetric")
    allowed += ("autoscaling:DescribeScalingActivities", "autoscaling:DescribeAutoScalingGroups")
    allowed += ("cloudwatch:ListMetrics",)
    for who, action, arn, _ in deployed().grants():
        if arn == "*":
            assert action.startswith(allowed), (who, action)
    log_delivery = {action for _, action, arn, _ in deployed().grants() if arn == "*" and action.startswith("logs:")}
    assert not {action for action in log_delivery if "LogEvents" in action or "LogStream" in action}


def test_no_permission_is_a_pattern_of_actions() -> None:
    assert not [action for _, action, _, _ in deployed().grants() if "*" in action]


def test_services_use_the_key_and_the_roles_for_this_account_alone() -> None:
    for role in deployed().properties("AWS::IAM::Role").values():
        for statement in role["AssumeRolePolicyDocument"]["Statement"]:
            if statement["Principal"]["Service"] != "lambda.amazonaws.com":
                assert statement["Condition"]["StringEquals"]["aws:SourceAccount"] == {"Ref": "AWS::AccountId"}


# What is kept, and for how long


def test_runs_and_caches_are_remembered_for_their_time_and_can_be_restored() -> None:
    tables = list(deployed().properties("AWS::DynamoDB::Table").values())
    keys = [runs.KEY, compile_cache.KEY]
    assert [table["KeySchema"] for table in tables] == [[{"AttributeName": key, "KeyType": "HASH"}] for key in keys]
    for table in tables:
        assert table["TimeToLiveSpecification"] == {"AttributeName": "expires_at", "Enabled": True}
        assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}
        assert table["SSESpecification"]["SSEType"] == "KMS"
        assert deployed().find(table["SSESpecification"]["KMSMasterKeyId"]).startswith("Key")


@pytest.mark.parametrize("production", [False, True])
def test_what_survives_destroy(production: bool) -> None:
    found = deployed(production=production)
    kept = {
        resource["Type"]
        for stack in ("Orchestration", "Triggers")
        for resource in found.templates[stack]["Resources"].values()
        if resource.get("DeletionPolicy") == "Retain"
    }
    assert kept == ({"AWS::KMS::Key", "AWS::DynamoDB::Table", "AWS::Logs::LogGroup"} if production else set())


def test_tables_can_be_restored_to_a_second_of_the_past() -> None:
    tables = deployed().properties("AWS::DynamoDB::Table").values()
    assert len(tables) == 2
    for table in tables:
        assert table["PointInTimeRecoverySpecification"] == {"PointInTimeRecoveryEnabled": True}


def test_production_refuses_to_delete_its_tables() -> None:
    for production in (False, True):
        for table in deployed(production=production).properties("AWS::DynamoDB::Table").values():
            assert table["DeletionProtectionEnabled"] is production


@pytest.mark.parametrize("production", [False, True])
def test_every_log_group_has_an_end_and_the_key(production: bool) -> None:
    for group in deployed(production=production).properties("AWS::Logs::LogGroup").values():
        assert group["RetentionInDays"] == (365 if production else 90)
        assert deployed().find(group["KmsKeyId"]).startswith("Key")


def test_the_key_is_turned_every_year() -> None:
    [key] = deployed().properties("AWS::KMS::Key").values()
    assert key["EnableKeyRotation"] is True


# Who is told


def test_people_are_told_over_an_encrypted_topic_that_takes_nothing_in_the_clear() -> None:
    [topic] = deployed().properties("AWS::SNS::Topic").values()
    assert deployed().find(topic["KmsMasterKeyId"]).startswith("Key")
    [policy] = deployed().properties("AWS::SNS::TopicPolicy").values()
    refused = [found for found in policy["PolicyDocument"]["Statement"] if found["Effect"] == "Deny"]
    assert refused[0]["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}


def test_everybody_in_the_configuration_is_asked_to_subscribe() -> None:
    subscriptions = deployed().properties("AWS::SNS::Subscription").values()
    assert [found["Endpoint"] for found in subscriptions] == list(configuration().alarms.emails)


def test_who_may_write_to_people() -> None:
    assert deployed().who_may("sns:Publish") == {
        "Notify",
        "StartRun",
        "ReportLostRequest",
        "CleanUp",
        "SurveyFleet",
    }


def test_outputs_tell_how_to_start_a_run() -> None:
    outputs = deployed().templates["Orchestration"]["Outputs"]
    assert outputs["TrainingStateMachine"]["Value"] == {"Ref": machine_id("blue-training")}
    assert "start-execution --state-machine-arn" in text(outputs["StartCommand"]["Value"])
