"""Every function is deployed as the list of functions says, and may do its own work and nothing else."""

from __future__ import annotations

import re

import pytest

from stacks.orchestration import functions as functions_module
from stacks.orchestration.bundling import PYTHON
from stacks.tools.idle_cost import SNAPSHOT_USD_PER_GB_SECOND
from tests.infrastructure.serverless import IN_NETWORK, deployed, text
from trainflow.deployment.functions import EVENT_HANDLERS, FUNCTIONS, Function
from trainflow.deployment.kubernetes_access import Access

TALKING = {function.name for function in FUNCTIONS if function.access}

each_function = pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)


def test_every_function_of_the_list_is_deployed_once() -> None:
    names = [function["FunctionName"] for function in deployed().properties("AWS::Lambda::Function").values()]
    assert sorted(names) == sorted(f"blue-{function.name}" for function in FUNCTIONS)


@each_function
def test_a_function_has_the_handler_time_and_memory_of_the_list(function: Function) -> None:
    found = deployed().functions()[function.name]
    assert found["Handler"] == function.handler
    assert found["Timeout"] == function.timeout_seconds
    assert found["MemorySize"] == function.memory_mib
    assert (found["Runtime"], found["Architectures"]) == (f"python{PYTHON}", ["arm64"])


@each_function
def test_a_function_is_told_what_it_reads_and_nothing_else(function: Function) -> None:
    variables = set(deployed().functions()[function.name]["Environment"]["Variables"])
    assert {name for name in variables if not name.startswith("POWERTOOLS_")} == set(function.environment)


def test_variables_hold_what_their_names_say() -> None:
    variables = deployed().functions()["SurveyFleet"]["Environment"]["Variables"]
    assert (variables["CLUSTER_NAME"], variables["NAMESPACE"]) == ("theirs", "training")
    assert variables["IDLE_MINUTES"] == "25"
    assert deployed().find(variables["RUN_TABLE"]) in deployed().resources("AWS::DynamoDB::Table")
    assert deployed().find(variables["TOPIC_ARN"]) in deployed().resources("AWS::SNS::Topic")
    bucket = deployed().functions()["PublishArtifacts"]["Environment"]["Variables"]["ARTIFACT_BUCKET"]
    assert deployed().find(bucket).startswith("Artifacts")


def test_no_two_functions_share_a_role_and_none_has_a_policy_of_amazons() -> None:
    roles = [deployed().find(function["Role"]) for function in deployed().functions().values()]
    assert len(set(roles)) == len(roles)
    for role in deployed().properties("AWS::IAM::Role").values():
        assert not any(":iam::aws:policy" in text(arn) for arn in role.get("ManagedPolicyArns", ()))


@each_function
def test_a_function_writes_to_its_own_log_group_alone(function: Function) -> None:
    group = deployed().find(deployed().functions()[function.name]["LoggingConfig"]["LogGroup"])
    written = {arn for who, action, arn, _ in deployed().grants() if who == function.name and action.startswith("logs")}
    assert written == {f"<{group}>"}


@each_function
def test_a_function_has_a_version_that_outlives_updates_and_not_failed_ones(function: Function) -> None:
    versions = deployed().resources("AWS::Lambda::Version").values()
    [version] = [
        found for found in versions if deployed().name_of(found["Properties"]["FunctionName"]) == function.name
    ]
    # A version that a failed update left would stand in the way: Lambda publishes the same code only once, and
    # CloudFormation then says "A version for this Lambda function exists".
    assert (version["DeletionPolicy"], version["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


def test_what_events_call_has_an_alias_and_nothing_else_has() -> None:
    aliases = deployed().properties("AWS::Lambda::Alias").values()
    called = sorted(deployed().name_of(alias["FunctionName"]) for alias in aliases)
    assert called == sorted(function.name for function in EVENT_HANDLERS)


@each_function
def test_a_function_is_traced(function: Function) -> None:
    assert deployed().functions()[function.name]["TracingConfig"] == {"Mode": "Active"}
    assert function.name in deployed().who_may("xray:PutTraceSegments")


@each_function
def test_who_talks_to_the_cluster_enters_it_in_one_group(function: Function) -> None:
    role = deployed().find(deployed().functions()[function.name]["Role"])
    entries = [
        (entry["ClusterName"], entry["KubernetesGroups"])
        for entry in deployed().properties("AWS::EKS::AccessEntry").values()
        if deployed().find(entry["PrincipalArn"]) == role
    ]
    assert entries == ([("theirs", [function.access.value])] if function.access else [])


def test_access_entries_come_with_groups_of_ours_and_no_policy_of_amazons() -> None:
    for entry in deployed().properties("AWS::EKS::AccessEntry").values():
        assert "AccessPolicies" not in entry


def test_who_may_delete_in_the_cluster() -> None:
    roles = {
        deployed().find(entry["PrincipalArn"])
        for entry in deployed().properties("AWS::EKS::AccessEntry").values()
        if Access.CLEAN_UP in entry["KubernetesGroups"]
    }
    names = {name for name, function in deployed().functions().items() if deployed().find(function["Role"]) in roles}
    assert names == {"TearDown", "CleanUp"}


def test_only_who_uses_a_table_or_sends_makes_data_keys_with_the_deployments_key() -> None:
    """Every function decrypts its variables with it. DynamoDB, SNS and SQS make data keys for their callers."""
    functions, users = set(deployed().functions()), set[str]()
    for action in ("dynamodb:GetItem", "dynamodb:UpdateItem", "dynamodb:Scan", "sns:Publish", "sqs:SendMessage"):
        users |= deployed().who_may(action) & functions
    key = deployed().find(deployed().functions()["PollJob"]["KmsKeyArn"])

    def who_may(action: str) -> set[str]:  # the buckets' key has the same name in a stack of its own
        return {
            who
            for who, granted, arn, _ in deployed().grants()
            if granted == action and who in functions and (arn == f"<{key}>" or "orchestration:" in arn.lower())
        }

    assert who_may("kms:GenerateDataKey") == users
    assert who_may("kms:Decrypt") == functions
    assert "PollJob" not in users


def test_who_talks_to_a_private_cluster_stands_in_its_network() -> None:
    for name, function in deployed().functions().items():
        if name in TALKING:
            assert function["VpcConfig"]["SubnetIds"] == IN_NETWORK["subnet_ids"]
            assert function["VpcConfig"]["SecurityGroupIds"] == [IN_NETWORK["security_group_id"]]
        else:
            assert "VpcConfig" not in function, name
    assert deployed().who_may("ec2:CreateNetworkInterface") == TALKING


def test_with_a_public_cluster_no_function_stands_in_a_network() -> None:
    outside = deployed(in_network=False)
    assert not any("VpcConfig" in function for function in outside.functions().values())
    assert outside.who_may("ec2:CreateNetworkInterface") == set()


def test_who_loads_the_kubernetes_client_starts_from_a_snapshot() -> None:
    snapshots = {name for name, function in deployed().functions().items() if "SnapStart" in function}
    assert snapshots == TALKING


def test_the_price_of_the_snapshots_is_the_one_that_is_written_down() -> None:
    gigabytes = sum(function.memory_mib for function in FUNCTIONS if function.access) / 1024
    written = re.search(r"([\d.]+) USD an hour", str(functions_module.__doc__))
    assert written is not None
    assert float(written[1]) == pytest.approx(gigabytes * 3600 * SNAPSHOT_USD_PER_GB_SECOND, rel=0.02)


def test_no_function_takes_concurrency_away_from_the_account() -> None:
    # A new account has ten, and AWS keeps back a hundred.
    assert not any("ReservedConcurrentExecutions" in function for function in deployed().functions().values())


@pytest.mark.parametrize("function", EVENT_HANDLERS, ids=lambda function: function.name)
def test_what_an_event_handler_could_not_handle_is_kept(function: Function) -> None:
    queue = deployed().functions()[function.name]["DeadLetterConfig"]["TargetArn"]
    assert deployed().find(queue) in deployed().resources("AWS::SQS::Queue")
    assert function.name in deployed().who_may("sqs:SendMessage", on=text(queue))
