"""Stacks in the twin, made by change sets as the CDK makes them: what moto's CloudFormation alone cannot do."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws.deployment import create_bucket
from local.aws.server import AwsServer
from local.aws.template import empty_archive
from tests.integration.permitted import FOR_RULES, SERVICES, make_role

ROLE = "arn:aws:iam::123456789012:role/states"
PASS = {"StartAt": "Pass", "States": {"Pass": {"Type": "Pass", "Result": {"word": "${Word}"}, "End": True}}}
ACCOUNT = {"AWS": "arn:aws:iam::123456789012:root"}
ACCOUNT_DECIDES = {"Statement": [{"Effect": "Allow", "Action": "kms:*", "Principal": ACCOUNT, "Resource": "*"}]}
"""The policy of a key that leaves it to the account's policies who may use it."""


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServer]:
    server = AwsServer(time_scale=60)
    server.take_stacks()
    server.start()
    assert make_role(server, "states") == ROLE
    server.client("eks").create_cluster(name="one", roleArn=ROLE, resourcesVpcConfig={"subnetIds": ["subnet-0"]})
    yield server
    server.stop()


class Stacks:
    """Makes stacks and knows what they are called."""

    def __init__(self, aws: AwsServer, prefix: str) -> None:
        self._cloudformation = aws.client("cloudformation")
        self._prefix = prefix

    def make(
        self, resources: dict[str, Any], outputs: dict[str, Any] | None = None, *, name: str = "stack"
    ) -> dict[str, str]:
        """Make a stack, or change it; returns its outputs."""
        stack = f"{self._prefix}-{name}"
        template = {"Resources": resources, **({"Outputs": outputs} if outputs else {})}
        change_set = self._cloudformation.create_change_set(
            StackName=stack,
            ChangeSetName="change",
            ChangeSetType="UPDATE" if self._exists(stack) else "CREATE",
            TemplateBody=json.dumps(template),
        )["Id"]
        self._cloudformation.execute_change_set(ChangeSetName=change_set)
        self._cloudformation.delete_change_set(ChangeSetName=change_set)
        (described,) = self._cloudformation.describe_stacks(StackName=stack)["Stacks"]
        return {output["OutputKey"]: output["OutputValue"] for output in described.get("Outputs", ())}

    def remove(self, name: str = "stack") -> str:
        """Remove a stack; returns its status afterwards."""
        stack = f"{self._prefix}-{name}"
        (described,) = self._cloudformation.describe_stacks(StackName=stack)["Stacks"]
        self._cloudformation.delete_stack(StackName=stack)
        (gone,) = self._cloudformation.describe_stacks(StackName=described["StackId"])["Stacks"]
        return str(gone["StackStatus"])

    def _exists(self, stack: str) -> bool:
        return any(found["StackName"] == stack for found in self._cloudformation.describe_stacks()["Stacks"])


@pytest.fixture
def stacks(aws: AwsServer, request: pytest.FixtureRequest) -> Stacks:
    return Stacks(aws, f"s{abs(hash(request.node.name)) % 10**8}")


def resource(kind: str, **properties: Any) -> dict[str, Any]:
    return {"Type": kind, "Properties": properties}


def get(name: str, attribute: str = "Arn") -> dict[str, Any]:
    return {"Fn::GetAtt": [name, attribute]}


FUNCTION = {
    "Role": resource("AWS::IAM::Role", AssumeRolePolicyDocument=SERVICES),
    "Function": resource(
        "AWS::Lambda::Function",
        Code={"ZipFile": "def handler(event, context): ..."},
        Handler="index.handler",
        Runtime="python3.12",
        Role=get("Role"),
    ),
    "Version": resource("AWS::Lambda::Version", FunctionName={"Ref": "Function"}),
    "Alias": resource(
        "AWS::Lambda::Alias",
        FunctionName={"Ref": "Function"},
        FunctionVersion=get("Version", "Version"),
        Name="live",
    ),
}


def test_a_stack_reads_what_another_one_exports(aws: AwsServer, stacks: Stacks) -> None:
    exported = {"Value": {"Ref": "Topic"}, "Export": {"Name": "the-topic"}}
    made = stacks.make({"Topic": resource("AWS::SNS::Topic")}, {"Topic": exported}, name="one")
    imported = {"Fn::ImportValue": "the-topic"}
    stacks.make({"Parameter": resource("AWS::SSM::Parameter", Name="t", Type="String", Value=imported)}, name="other")
    assert aws.client("ssm").get_parameter(Name="t")["Parameter"]["Value"] == made["Topic"]


def test_change_sets_of_two_stacks_may_have_one_name(aws: AwsServer) -> None:
    cloudformation = aws.client("cloudformation")

    def create(stack: str) -> None:
        topic = {"Resources": {"Topic": resource("AWS::SNS::Topic", TopicName=f"of-{stack}")}}
        cloudformation.create_change_set(
            StackName=stack, ChangeSetName="same", ChangeSetType="CREATE", TemplateBody=json.dumps(topic)
        )

    cloudformation.delete_change_set(StackName="first", ChangeSetName="same")  # none yet: no fault
    create("first")
    create("second")
    cloudformation.execute_change_set(StackName="first", ChangeSetName="same")
    cloudformation.delete_change_set(StackName="first", ChangeSetName="same")
    described = cloudformation.describe_change_set(StackName="second", ChangeSetName="same")
    assert described["StackName"] == "second"
    for ask in (cloudformation.describe_change_set, cloudformation.execute_change_set):
        with pytest.raises(cloudformation.exceptions.ChangeSetNotFoundException, match=r"\[same\] does not exist"):
            ask(StackName="first", ChangeSetName="same")
    topics = [topic["TopicArn"].rsplit(":", 1)[1] for topic in aws.client("sns").list_topics()["Topics"]]
    assert "of-first" in topics and "of-second" not in topics


def test_a_removed_stack_leaves_nothing_although_its_outputs_are_asked_for(aws: AwsServer, stacks: Stacks) -> None:
    exported = {"Value": get("Queue"), "Export": {"Name": "the-queue"}}
    stacks.make({"Queue": resource("AWS::SQS::Queue", QueueName="short-lived")}, {"Queue": exported})
    assert stacks.remove() == "DELETE_COMPLETE"
    assert not any("short-lived" in url for url in aws.client("sqs").list_queues().get("QueueUrls", ()))


def test_a_resource_that_cannot_be_made_is_named(stacks: Stacks) -> None:
    with pytest.raises(ClientError, match=r"Broken \(AWS::SNS::Subscription\).*TopicArn"):
        stacks.make({"Broken": resource("AWS::SNS::Subscription", Protocol="sqs", Endpoint="x")})


def test_a_state_machine_runs_with_its_placeholders_filled(aws: AwsServer, stacks: Stacks) -> None:
    create_bucket(aws, "definitions")
    aws.client("s3").put_object(Bucket="definitions", Key="pass.json", Body=json.dumps(PASS).encode())
    common = {"RoleArn": ROLE, "DefinitionSubstitutions": {"Word": "filled"}}
    definitions = (
        {"DefinitionString": json.dumps(PASS)},
        {"DefinitionS3Location": {"Bucket": "definitions", "Key": "pass.json"}},
        {"Definition": PASS},
    )
    machines = {
        f"Machine{number}": resource("AWS::StepFunctions::StateMachine", **common, **definition)
        for number, definition in enumerate(definitions)
    }
    outputs = {name: {"Value": {"Ref": name}} for name in machines}
    for arn in stacks.make(machines, outputs).values():
        assert run(aws, arn) == {"word": "filled"}


def test_a_changed_state_machine_stays_the_same_one(aws: AwsServer, stacks: Stacks) -> None:
    def machine(word: str) -> dict[str, Any]:
        settings = {"DefinitionString": json.dumps(PASS), "DefinitionSubstitutions": {"Word": word}, "RoleArn": ROLE}
        return {"Machine": resource("AWS::StepFunctions::StateMachine", **settings)}

    outputs = {"Arn": {"Value": {"Ref": "Machine"}}}
    before, after = stacks.make(machine("old"), outputs), stacks.make(machine("new"), outputs)
    assert before == after
    assert run(aws, after["Arn"]) == {"word": "new"}


def test_what_a_customers_key_encrypts_stands_in_no_event(aws: AwsServer, stacks: Stacks) -> None:
    queue = aws.client("sqs").create_queue(QueueName="events", Attributes={"Policy": FOR_RULES})["QueueUrl"]
    made = stacks.make(
        {
            "Key": resource("AWS::KMS::Key", KeyPolicy=ACCOUNT_DECIDES, Tags=[{"Key": "a", "Value": "b"}]),
            "Machine": resource(
                "AWS::StepFunctions::StateMachine",
                RoleArn=ROLE,
                DefinitionString=json.dumps(PASS),
                EncryptionConfiguration={"Type": "CUSTOMER_MANAGED_KMS_KEY", "KmsKeyId": get("Key")},
            ),
            "Rule": resource(
                "AWS::Events::Rule",
                EventPattern={"detail": {"status": ["SUCCEEDED"], "stateMachineArn": [{"Ref": "Machine"}]}},
                Targets=[{"Id": "queue", "Arn": "arn:aws:sqs:us-west-2:123456789012:events"}],
            ),
        },
        {"Arn": {"Value": {"Ref": "Machine"}}},
    )
    run(aws, made["Arn"])
    assert aws.targets.drain(10)
    (message,) = aws.client("sqs").receive_message(QueueUrl=queue)["Messages"]
    assert not {"input", "output"} & set(json.loads(message["Body"])["detail"])


def test_an_alias_leads_to_the_published_version(aws: AwsServer, stacks: Stacks) -> None:
    grant = {"FunctionName": {"Ref": "Alias"}, "Action": "lambda:InvokeFunction", "Principal": "events.amazonaws.com"}
    resources = {**FUNCTION, "Grant": resource("AWS::Lambda::Permission", **grant)}
    made = stacks.make(resources, {"Alias": {"Value": {"Ref": "Alias"}}, "Name": {"Value": {"Ref": "Function"}}})
    assert aws.guard.account.policy_on(made["Alias"]) is not None
    assert aws.guard.account.policy_on(made["Alias"].rpartition(":")[0]) is None, "the permission is for the alias"
    configuration = aws.client("lambda").get_function_configuration(FunctionName=made["Alias"])
    assert (configuration["FunctionName"], configuration["Version"]) == (made["Name"], "1")


def test_an_update_publishes_what_has_changed_and_keeps_the_version_before(aws: AwsServer, stacks: Stacks) -> None:
    functions, outputs = aws.client("lambda"), {"Name": {"Value": {"Ref": "Function"}}}
    create_bucket(aws, "code")
    aws.client("s3").put_object(Bucket="code", Key="archive.zip", Body=empty_archive())
    made = stacks.make(versioned("Version1", timeout=3), outputs)

    stacks.make(versioned("Version2", timeout=4), outputs)

    listed = functions.list_versions_by_function(FunctionName=made["Name"])["Versions"]
    assert {found["Version"]: found["Timeout"] for found in listed} == {"$LATEST": 4, "1": 3, "2": 4}
    functions.delete_function(FunctionName=made["Name"], Qualifier="1")
    stacks.make(versioned("Version3", timeout=5), outputs)
    live = functions.get_function_configuration(FunctionName=made["Name"], Qualifier="live")
    assert (live["Version"], live["Timeout"]) == ("3", 5), "a number does not come twice"


def test_the_same_function_is_not_published_twice(stacks: Stacks) -> None:
    stacks.make(versioned("Version1", timeout=3))
    with pytest.raises(ClientError, match=r"A version for this Lambda function exists \(1\)"):
        stacks.make(versioned("Version2", timeout=3))


def versioned(version: str, *, timeout: int) -> dict[str, Any]:
    """A function as the CDK makes it: another text is another version under another logical id."""
    properties = FUNCTION["Function"]["Properties"]
    code = {"S3Bucket": "code", "S3Key": "archive.zip"}
    return {
        "Role": FUNCTION["Role"],
        "Function": resource("AWS::Lambda::Function", **{**properties, "Code": code, "Timeout": timeout}),
        version: {**FUNCTION["Version"], "DeletionPolicy": "RetainExceptOnCreate"},
        "Alias": resource(
            "AWS::Lambda::Alias",
            FunctionName={"Ref": "Function"},
            FunctionVersion=get(version, "Version"),
            Name="live",
        ),
    }


def test_a_parent_that_names_a_version_goes_on_with_it_after_an_update(aws: AwsServer, stacks: Stacks) -> None:
    def machines(word: str) -> dict[str, Any]:
        child = {"DefinitionString": json.dumps(PASS), "DefinitionSubstitutions": {"Word": word}, "RoleArn": ROLE}
        parent = {
            "DefinitionString": json.dumps(WAIT_AND_START),
            "DefinitionSubstitutions": {"Child": {"Ref": "Version"}},
            "RoleArn": ROLE,
        }
        revision = get("Child", "StateMachineRevisionId")
        version = {"StateMachineArn": get("Child"), "StateMachineRevisionId": revision}
        return {
            "Parent": resource("AWS::StepFunctions::StateMachine", **parent),
            "Version": resource("AWS::StepFunctions::StateMachineVersion", **version),
            "Child": resource("AWS::StepFunctions::StateMachine", **child),
        }

    outputs = {name: {"Value": {"Ref": name}} for name in ("Parent", "Child", "Version")}
    stepfunctions = aws.client("stepfunctions")
    before = stacks.make(machines("old"), outputs)
    begun = stepfunctions.start_execution(stateMachineArn=before["Parent"], name="begun", input="{}")["executionArn"]

    after = stacks.make(machines("new"), outputs)

    assert before["Version"] != after["Version"]
    assert before["Version"] in stepfunctions.describe_state_machine_for_execution(executionArn=begun)["definition"]
    assert output(aws, begun)["Output"] == {"word": "old"}
    assert run(aws, after["Parent"])["Output"] == {"word": "new"}
    children = stepfunctions.list_executions(stateMachineArn=after["Child"])["executions"]
    assert {child["stateMachineArn"] for child in children} == {after["Child"]} and len(children) == 2
    listed = stepfunctions.list_state_machine_versions(stateMachineArn=after["Child"])["stateMachineVersions"]
    assert [found["stateMachineVersionArn"] for found in listed] == [after["Version"], before["Version"]]
    stepfunctions.delete_state_machine_version(stateMachineVersionArn=before["Version"])
    with pytest.raises(ClientError, match="Does Not Exist"):
        stepfunctions.describe_state_machine(stateMachineArn=before["Version"])


WAIT_AND_START = {
    "StartAt": "Wait",
    "States": {
        "Wait": {"Type": "Wait", "Seconds": 120, "Next": "Start"},
        "Start": {
            "Type": "Task",
            "Resource": "arn:aws:states:::states:startExecution.sync:2",
            "Parameters": {"StateMachineArn": "${Child}", "Name.$": "$$.Execution.Name", "Input": {}},
            "End": True,
        },
    },
}


def test_access_entries_and_schedules_come_and_go_with_their_stack(aws: AwsServer, stacks: Stacks) -> None:
    group = resource("AWS::Scheduler::ScheduleGroup", Name="ours")
    schedule = resource(
        "AWS::Scheduler::Schedule",
        Name="weekly",
        GroupName={"Ref": "Group"},
        ScheduleExpression="rate(7 days)",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": "arn:aws:sqs:us-west-2:123456789012:q", "RoleArn": ROLE},
    )
    entry = resource("AWS::EKS::AccessEntry", ClusterName="one", PrincipalArn=get("Role"), KubernetesGroups=["g"])
    role = FUNCTION["Role"]
    stacks.make({"Schedule": schedule, "Group": group, "Entry": entry, "Role": role})
    eks, scheduler = aws.client("eks"), aws.client("scheduler")
    assert len(eks.list_access_entries(clusterName="one")["accessEntries"]) == 1
    assert [found["Name"] for found in scheduler.list_schedules(GroupName="ours")["Schedules"]] == ["weekly"]
    stacks.remove()
    assert eks.list_access_entries(clusterName="one")["accessEntries"] == []
    assert scheduler.list_schedules()["Schedules"] == []


def test_a_bucket_has_versions_and_events_and_goes_when_it_was_emptied(aws: AwsServer, stacks: Stacks) -> None:
    bucket = resource(
        "AWS::S3::Bucket",
        VersioningConfiguration={"Status": "Enabled"},
        NotificationConfiguration={"EventBridgeConfiguration": {"EventBridgeEnabled": True}},
    )
    emptied = resource("Custom::S3AutoDeleteObjects", ServiceToken="arn:x", BucketName={"Ref": "Bucket"})
    (name,) = stacks.make({"Bucket": bucket, "Emptied": emptied}, {"Name": {"Value": {"Ref": "Bucket"}}}).values()
    s3 = aws.client("s3")
    for body in (b"old", b"new"):
        s3.put_object(Bucket=name, Key="key", Body=body)
    assert len(s3.list_object_versions(Bucket=name)["Versions"]) == 2
    stacks.remove()
    assert name not in [found["Name"] for found in s3.list_buckets()["Buckets"]]


def test_a_bucket_with_objects_is_not_removed_without_a_word(aws: AwsServer, stacks: Stacks) -> None:
    outputs = {"Name": {"Value": {"Ref": "Bucket"}}}
    (name,) = stacks.make({"Bucket": resource("AWS::S3::Bucket")}, outputs).values()
    aws.client("s3").put_object(Bucket=name, Key="key", Body=b"x")
    with pytest.raises(ClientError, match=r"cannot be deleted.*not empty"):
        stacks.remove()


@pytest.mark.parametrize(("empty_on_delete", "status"), [(True, "DELETE_COMPLETE"), (False, None)])
def test_a_repository_with_images_goes_only_if_it_may_be_emptied(
    aws: AwsServer, stacks: Stacks, empty_on_delete: bool, status: str | None
) -> None:
    properties = {"EmptyOnDelete": empty_on_delete}
    name = stacks.make(
        {"Images": {"Type": "AWS::ECR::Repository", "Properties": properties}}, {"Name": {"Value": {"Ref": "Images"}}}
    )["Name"]
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json", "layers": []}
    aws.client("ecr").put_image(repositoryName=name, imageManifest=json.dumps(manifest), imageTag="one")
    if status is None:
        with pytest.raises(ClientError, match="cannot be deleted because it still contains images"):
            stacks.remove()
    else:
        assert stacks.remove() == status


def test_tables_alarms_and_repositories_are_made(aws: AwsServer, stacks: Stacks) -> None:
    keys = {
        "KeySchema": [{"AttributeName": "run_id", "KeyType": "HASH"}],
        "AttributeDefinitions": [{"AttributeName": "run_id", "AttributeType": "S"}],
    }
    alarm = resource(
        "AWS::CloudWatch::Alarm",
        AlarmName="too-hot",
        Namespace="n",
        MetricName="m",
        Statistic="Sum",
        Period=60,
        EvaluationPeriods=1,
        Threshold=1,
        ComparisonOperator="GreaterThanThreshold",
    )
    stacks.make(
        {
            "Table": resource("AWS::DynamoDB::GlobalTable", TableName="runs", **keys),
            "Alarm": alarm,
            "Repository": resource("AWS::ECR::Repository"),
        }
    )
    assert aws.client("dynamodb").describe_table(TableName="runs")["Table"]["KeySchema"] == keys["KeySchema"]
    assert aws.client("cloudwatch").describe_alarms(AlarmNames=["too-hot"])["MetricAlarms"]
    assert aws.client("ecr").describe_repositories()["repositories"]


def test_types_that_nothing_here_reads_can_be_referred_to(stacks: Stacks) -> None:
    made = stacks.make(
        {
            "Budget": resource("AWS::Budgets::Budget", Name="daily"),
            "Custom": resource("Custom::Thing", ServiceToken="x"),
        },
        {"Name": {"Value": {"Ref": "Budget"}}, "Arn": {"Value": get("Custom", "Arn")}},
    )
    assert made["Name"] == "daily"
    assert made["Arn"].startswith("arn:aws:")


def run(aws: AwsServer, machine: str) -> Any:
    """The output of a new execution."""
    started = aws.client("stepfunctions").start_execution(stateMachineArn=machine, name="run")
    return output(aws, started["executionArn"])


def output(aws: AwsServer, arn: str) -> Any:
    """The output of an execution, once it has ended."""
    stepfunctions = aws.client("stepfunctions")
    deadline = time.monotonic() + 20
    while (described := stepfunctions.describe_execution(executionArn=arn))["status"] == "RUNNING":
        assert time.monotonic() < deadline, "the execution did not end"
        time.sleep(0.02)
    assert described["status"] == "SUCCEEDED", (described.get("error"), described.get("cause"))
    return json.loads(described["output"])
