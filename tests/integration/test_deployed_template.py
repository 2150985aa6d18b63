"""What the services of the twin answer about its resources is what the stacks' templates ask for."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends

from local.aws import deployment
from local.aws.deployment import Deployment
from local.aws.server import AwsServer
from local.aws.template import NAMES, resources
from trainflow.deployment.functions import EVENT_HANDLERS, FUNCTIONS, LIVE, SLURM, TASKS
from trainflow.state_machines import definition_json


@pytest.fixture(scope="module")
def deployed(aws: AwsServer) -> Deployment:
    deployment.make_cluster(aws)
    return deployment.deploy(aws)


def of_type(kind: str) -> dict[str, dict[str, Any]]:
    """Properties of the resources of a type, by `stack.LogicalId`."""
    return {name: resource["Properties"] for name, resource in resources().items() if resource["Type"] == kind}


def named(name: str) -> dict[str, Any]:
    found: dict[str, Any] = resources()[name]["Properties"]
    return found


def test_functions_have_the_settings_of_the_template(aws: AwsServer, deployed: Deployment) -> None:
    functions = aws.client("lambda")
    asked = of_type("AWS::Lambda::Function")
    assert len(asked) == len(FUNCTIONS)
    for properties in asked.values():
        name = properties["FunctionName"]
        found = functions.get_function_configuration(FunctionName=name)
        same = ("Runtime", "Handler", "MemorySize", "Timeout", "Architectures", "Description", "TracingConfig")
        assert {key: found[key] for key in same} == {key: properties[key] for key in same}
        variables, wanted = found["Environment"]["Variables"], properties["Environment"]["Variables"]
        assert variables.keys() == wanted.keys()
        assert {key: variables[key] for key, value in wanted.items() if "${" not in value} == {
            key: value for key, value in wanted.items() if "${" not in value
        }
        assert not any("${" in value or "arn:aws:twin" in value for value in variables.values())
        assert all(variables[key] == "" for key in variables.keys() & set(SLURM))
        versions = functions.list_versions_by_function(FunctionName=name)["Versions"]
        assert [version["Version"] for version in versions] == ["$LATEST", "1"]


def test_functions_may_write_the_streams_of_their_log_groups(aws: AwsServer, deployed: Deployment) -> None:
    """CloudFormation's reference, AWS::Logs::LogGroup: the attribute Arn ends with `:*`."""
    iam = aws.client("iam")
    for function in FUNCTIONS:
        role = f"trainflow-{function.name}"
        names = iam.list_role_policies(RoleName=role)["PolicyNames"]
        policies = [iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"] for name in names]
        statements = [
            each for policy in policies for each in policy["Statement"] if "logs:PutLogEvents" in each["Action"]
        ]
        (resource,) = [each["Resource"] for each in statements]
        assert resource.endswith(f":log-group:trainflow-{function.name}Logs:*")


def test_events_reach_functions_by_their_alias(aws: AwsServer, deployed: Deployment) -> None:
    for function in EVENT_HANDLERS:
        alias = aws.client("lambda").get_alias(FunctionName=f"trainflow-{function.name}", Name=LIVE)
        assert alias["FunctionVersion"] == "1"
    (live,) = (alias for name, alias in of_type("AWS::Lambda::Alias").items() if "CleanUp" in name)
    assert live["Name"] == LIVE


def test_tables_have_keys_encryption_time_to_live_and_backups(aws: AwsServer, deployed: Deployment) -> None:
    dynamodb = aws.client("dynamodb")
    for name, properties in of_type("AWS::DynamoDB::Table").items():
        table = dynamodb.describe_table(TableName=NAMES[name])["Table"]
        assert table["KeySchema"] == properties["KeySchema"]
        assert table["AttributeDefinitions"] == properties["AttributeDefinitions"]
        assert table["BillingModeSummary"]["BillingMode"] == properties["BillingMode"]
        assert table["SSEDescription"]["SSEType"] == properties["SSESpecification"]["SSEType"]
        assert "StreamSpecification" not in properties
        ttl = dynamodb.describe_time_to_live(TableName=NAMES[name])["TimeToLiveDescription"]
        assert ttl == {"TimeToLiveStatus": "ENABLED", "AttributeName": "expires_at"}
        backups = dynamodb.describe_continuous_backups(TableName=NAMES[name])["ContinuousBackupsDescription"]
        assert backups["PointInTimeRecoveryDescription"]["PointInTimeRecoveryStatus"] == "ENABLED"


def test_state_machines_call_versions(aws: AwsServer, deployed: Deployment) -> None:
    stepfunctions = aws.client("stepfunctions")
    training = stepfunctions.describe_state_machine(stateMachineArn=deployed.address.state_machine_arn)
    text: str = training["definition"]
    assert json.loads(text).keys() == json.loads(definition_json("training")).keys()
    called = [function for function in TASKS if f":trainflow-{function.name}:1" in text]
    assert called and ":stateMachine:trainflow-watch-job:1" in text
    properties = named("orchestration.StateMachinesTraining")
    assert training["type"] == properties["StateMachineType"]
    assert training["tracingConfiguration"]["enabled"] is properties["TracingConfiguration"]["Enabled"]
    assert training["encryptionConfiguration"]["type"] == properties["EncryptionConfiguration"]["Type"]


def test_queues_keep_and_hide_messages_as_long(aws: AwsServer, deployed: Deployment) -> None:
    sqs = aws.client("sqs")
    for name, properties in of_type("AWS::SQS::Queue").items():
        queue = NAMES.get(name, f"trainflow-{name.partition('.')[2]}")
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
        for key in ("MessageRetentionPeriod", "VisibilityTimeout"):
            assert found[key] == str(properties[key])
        assert found["KmsMasterKeyId"].startswith("arn:aws:kms:")
        redrive = json.loads(found.get("RedrivePolicy", "{}"))
        assert redrive.get("maxReceiveCount") == properties.get("RedrivePolicy", {}).get("maxReceiveCount")


def test_rules_and_schedules_have_the_targets_of_the_template(aws: AwsServer, deployed: Deployment) -> None:
    events, scheduler = aws.client("events"), aws.client("scheduler")
    for name, properties in of_type("AWS::Events::Rule").items():
        rule = events.describe_rule(Name=NAMES[name])
        pattern = json.loads(rule["EventPattern"])
        assert pattern.keys() == properties["EventPattern"].keys()
        assert pattern["source"] == properties["EventPattern"]["source"]
        (target,), (wanted,) = events.list_targets_by_rule(Rule=NAMES[name])["Targets"], properties["Targets"]
        assert target["RetryPolicy"] == wanted["RetryPolicy"]
        assert target["DeadLetterConfig"]["Arn"].startswith("arn:aws:sqs:")
    for properties in of_type("AWS::Scheduler::Schedule").values():
        found = scheduler.get_schedule(GroupName=properties["GroupName"], Name=properties["Name"])
        for key in ("ScheduleExpression", "ScheduleExpressionTimezone", "FlexibleTimeWindow", "State"):
            assert found[key] == properties[key]
        assert found["Target"]["RetryPolicy"] == properties["Target"]["RetryPolicy"]
        assert found["Target"]["Input"] == properties["Target"]["Input"]


def test_roles_have_the_statements_of_the_template(aws: AwsServer, deployed: Deployment) -> None:
    iam = aws.client("iam")
    for name, properties in of_type("AWS::IAM::Role").items():
        role = NAMES.get(name, f"trainflow-{name.partition('.')[2].removesuffix('Role')}")
        inline = iam.list_role_policies(RoleName=role)["PolicyNames"]
        attached = iam.list_attached_role_policies(RoleName=role)["AttachedPolicies"]
        assert len(attached) == len(properties.get("ManagedPolicyArns", ()))
        for policy in properties.get("Policies", ()):
            assert policy["PolicyName"] in inline
            found = iam.get_role_policy(RoleName=role, PolicyName=policy["PolicyName"])["PolicyDocument"]["Statement"]
            wanted = policy["PolicyDocument"]["Statement"]
            assert actions(found) <= actions(wanted)
            assert actions(wanted) - actions(found) <= {"secretsmanager:GetSecretValue"}, "no secrets are granted"


def actions(statements: list[Mapping[str, Any]]) -> set[str]:
    return {
        action
        for statement in statements
        for action in (statement["Action"] if isinstance(statement["Action"], list) else [statement["Action"]])
    }


def test_log_groups_expire(aws: AwsServer, deployed: Deployment) -> None:
    groups = {group["logGroupName"]: group for group in aws.client("logs").describe_log_groups()["logGroups"]}
    for name, properties in of_type("AWS::Logs::LogGroup").items():
        group = properties.get("LogGroupName", f"trainflow-{name.partition('.')[2]}")
        assert groups[group]["retentionInDays"] == properties["RetentionInDays"]


def test_buckets_have_versions_and_send_events(aws: AwsServer, deployed: Deployment) -> None:
    s3, buckets = aws.client("s3"), s3_backends[DEFAULT_ACCOUNT_ID]["aws"].buckets
    for name, properties in of_type("AWS::S3::Bucket").items():
        assert s3.get_bucket_versioning(Bucket=NAMES[name])["Status"] == properties["VersioningConfiguration"]["Status"]
        sends = buckets[NAMES[name]].notification_configuration is not None  # moto's answer leaves out EventBridge
        assert sends == ("NotificationConfiguration" in properties)
        rule = s3.get_bucket_encryption(Bucket=NAMES[name])["ServerSideEncryptionConfiguration"]["Rules"][0]
        assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"


def test_clients_find_the_deployment_by_its_parameter(aws: AwsServer, deployed: Deployment) -> None:
    value = aws.client("ssm").get_parameter(Name="/trainflow/twin/address")["Parameter"]["Value"]
    assert json.loads(value) == deployed.address.model_dump()
    assert deployed.address.deployment == "twin"
