"""The twin's EventBridge, queues, schedules and access entries: what moto alone cannot do."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from botocore.exceptions import ClientError

from local.aws.deployment import create_bucket
from local.aws.lambda_runtime import LambdaRuntime
from local.aws.server import AwsServer
from local.aws.template import empty_archive
from tests.integration.permitted import FOR_RULES, let_rules_invoke, make_role
from tests.waiting import wait_until

TIME_SCALE = 600


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServer]:
    server = AwsServer(time_scale=TIME_SCALE)
    server.start()
    make_role(server, "states")
    yield server
    server.stop()


@pytest.fixture(scope="module")
def log_dir(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Logs of the functions, which run."""
    folder = tmp_path_factory.mktemp("lambda")
    environment = {**aws.client_environment, "PATH": "/usr/bin"}
    runtime = LambdaRuntime(environment, log_dir=folder, credentials=aws.credentials_of)
    runtime.start()
    runtime.wait_ready()
    yield folder
    runtime.stop()


class Function:
    """A function that records what it gets."""

    def __init__(self, aws: AwsServer, log_dir: Path, name: str, *, module: str = "recorder") -> None:
        role = make_role(aws, name)
        self.arn = aws.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.12",
            Role=role,
            Handler=f"tests.integration.handlers.{module}.lambda_handler",
            Timeout=20,
            MemorySize=512,
            Code={"ZipFile": empty_archive()},
        )["FunctionArn"]
        let_rules_invoke(aws, name)
        self._log = log_dir / f"{name}.log"

    def records(self) -> list[dict[str, Any]]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [json.loads(line) for line in lines if line.startswith('{"got"')]

    def got(self) -> list[Any]:
        """Every event that it was invoked with."""
        return [record["got"] for record in self.records()]


@pytest.fixture
def function(aws: AwsServer, log_dir: Path, request: pytest.FixtureRequest) -> Function:
    return Function(aws, log_dir, f"recorder-{abs(hash(request.node.name)) % 10**8}")


class Queue:
    """A queue, and what is in it."""

    def __init__(self, aws: AwsServer, name: str, **attributes: str) -> None:
        self._sqs = aws.client("sqs")
        self.url = self._sqs.create_queue(QueueName=name, Attributes={"Policy": FOR_RULES, **attributes})["QueueUrl"]
        found = self._sqs.get_queue_attributes(QueueUrl=self.url, AttributeNames=["QueueArn"])
        self.arn = found["Attributes"]["QueueArn"]

    def send(self, *bodies: str) -> None:
        entries = [{"Id": str(number), "MessageBody": body} for number, body in enumerate(bodies)]
        self._sqs.send_message_batch(QueueUrl=self.url, Entries=entries)

    def bodies(self) -> list[str]:
        messages = self._sqs.receive_message(QueueUrl=self.url, MaxNumberOfMessages=10).get("Messages", ())
        for message in messages:
            self._sqs.delete_message(QueueUrl=self.url, ReceiptHandle=message["ReceiptHandle"])
        return [message["Body"] for message in messages]


@pytest.fixture
def queue(aws: AwsServer, request: pytest.FixtureRequest) -> Queue:
    return Queue(aws, f"queue-{abs(hash(request.node.name)) % 10**8}")


Rule = Callable[..., None]


@pytest.fixture
def rule(aws: AwsServer, request: pytest.FixtureRequest) -> Iterator[Rule]:
    events, name = aws.client("events"), f"rule-{abs(hash(request.node.name)) % 10**8}"

    def make(pattern: dict[str, Any], *targets: dict[str, Any], state: str = "ENABLED") -> None:
        events.put_rule(Name=name, EventPattern=json.dumps(pattern), State=state)
        events.put_targets(Rule=name, Targets=[{"Id": str(number), **target} for number, target in enumerate(targets)])

    yield make
    events.put_rule(Name=name, EventPattern=json.dumps({"source": ["nobody"]}))


def put_event(aws: AwsServer, **detail: Any) -> None:
    entry = {"Source": "tests", "DetailType": "Something", "Detail": json.dumps(detail)}
    aws.client("events").put_events(Entries=[entry])
    assert aws.targets.drain(20)


STATES = "arn:aws:iam::123456789012:role/states"

FROM_US = {"source": ["tests"]}


def test_an_invocation_waits_its_turn_and_is_never_repeated_because_it_waited(aws: AwsServer) -> None:
    config = aws.client("lambda").meta.config
    assert (config.read_timeout, config.retries["total_max_attempts"]) == (None, 1)


def test_a_rule_hands_the_whole_event_to_a_queue(aws: AwsServer, rule: Rule, queue: Queue) -> None:
    rule(FROM_US, {"Arn": queue.arn})
    put_event(aws, n=1)
    put_event(aws, n=2)
    first, second = (json.loads(body) for body in queue.bodies())
    assert (first["source"], first["detail-type"], first["detail"]) == ("tests", "Something", {"n": 1})
    assert first["time"].endswith("Z")
    assert first["id"] != second["id"]


def test_a_disabled_rule_hands_on_nothing(aws: AwsServer, rule: Rule, queue: Queue) -> None:
    rule(FROM_US, {"Arn": queue.arn}, state="DISABLED")
    put_event(aws)
    assert queue.bodies() == []


def test_a_rule_with_a_schedule_is_not_every_events(aws: AwsServer, queue: Queue) -> None:
    aws.client("events").put_rule(Name="by-the-clock", ScheduleExpression="rate(1 day)")
    aws.client("events").put_targets(Rule="by-the-clock", Targets=[{"Id": "queue", "Arn": queue.arn}])
    put_event(aws)
    assert queue.bodies() == []


def test_a_target_gets_what_its_transformer_or_path_or_constant_says(aws: AwsServer, rule: Rule, queue: Queue) -> None:
    transformer = {"InputPathsMap": {"name": "$.detail.name"}, "InputTemplate": '{"run": <name>}'}
    rule(
        FROM_US,
        {"Arn": queue.arn, "InputTransformer": transformer},
        {"Arn": queue.arn, "InputPath": "$.detail"},
        {"Arn": queue.arn, "Input": '{"constant": 1}'},
    )
    put_event(aws, name="a")
    assert sorted(queue.bodies()) == ['{"constant": 1}', '{"name": "a"}', '{"run": "a"}']


def test_an_upload_is_an_event_of_its_bucket(aws: AwsServer, rule: Rule, queue: Queue) -> None:
    create_bucket(aws, "uploads")
    aws.client("s3").put_bucket_notification_configuration(
        Bucket="uploads", NotificationConfiguration={"EventBridgeConfiguration": {}}
    )
    keys = [{"wildcard": "runs/*.yaml"}]
    rule(
        {
            "source": ["aws.s3"],
            "detail-type": ["Object Created"],
            "detail": {"bucket": {"name": ["uploads"]}, "object": {"key": keys}},
        },
        {"Arn": queue.arn},
    )
    for key in ("runs/a.yaml", "runs/a.txt", "data/a.yaml"):
        aws.client("s3").put_object(Bucket="uploads", Key=key, Body=b"x")
    assert aws.targets.drain(20)
    (event,) = (json.loads(body) for body in queue.bodies())
    assert (event["detail"]["bucket"]["name"], event["detail"]["object"]["key"]) == ("uploads", "runs/a.yaml")
    assert event["time"].endswith("Z")


def test_a_function_that_fails_is_called_thrice_and_then_the_event_is_a_dead_letter(
    aws: AwsServer, rule: Rule, function: Function, queue: Queue
) -> None:
    rule(FROM_US, {"Arn": function.arn, "DeadLetterConfig": {"Arn": queue.arn}})
    put_event(aws, fail=True)
    assert [event["detail"] for event in function.got()] == [{"fail": True}] * 3
    assert [json.loads(body)["detail"] for body in queue.bodies()] == [{"fail": True}]
    put_event(aws, fail=False)
    assert len(function.got()) == 4
    assert queue.bodies() == []


def test_a_rule_starts_an_execution(aws: AwsServer, rule: Rule) -> None:
    machine = state_machine(aws, "started-by-rule", {"Pass": {"Type": "Pass", "End": True}})
    rule(FROM_US, {"Arn": machine, "RoleArn": STATES, "InputPath": "$.detail"})
    put_event(aws, n=1)
    (execution,) = aws.client("stepfunctions").list_executions(stateMachineArn=machine)["executions"]
    described = aws.client("stepfunctions").describe_execution(executionArn=execution["executionArn"])
    assert json.loads(described["input"]) == {"n": 1}


def test_a_queue_hands_batches_to_its_function_and_only_what_failed_comes_again(
    aws: AwsServer, function: Function
) -> None:
    dead = Queue(aws, "dead-letters")
    redrive = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 3})
    queue = Queue(aws, "requests", VisibilityTimeout="60", RedrivePolicy=redrive)
    queue.send("good 1", "bad", "good 2")
    aws.client("lambda").create_event_source_mapping(
        EventSourceArn=queue.arn, FunctionName=function.arn, FunctionResponseTypes=["ReportBatchItemFailures"]
    )
    wait_until(lambda: len(function.got()) == 3)
    first, *again = [[record["body"] for record in event["Records"]] for event in function.got()]
    assert sorted(first) == ["bad", "good 1", "good 2"]
    assert again == [["bad"], ["bad"]]
    dead_letters: list[str] = []
    wait_until(lambda: bool(dead_letters.extend(dead.bodies()) or dead_letters))
    assert dead_letters == ["bad"]
    assert len(function.got()) == 3


def test_a_mapping_that_is_enabled_later_finds_the_messages_that_wait(aws: AwsServer, function: Function) -> None:
    queue, functions = Queue(aws, "waiting-requests"), aws.client("lambda")
    mapping = functions.create_event_source_mapping(EventSourceArn=queue.arn, FunctionName=function.arn, Enabled=False)
    attributes = {"run": {"DataType": "String", "StringValue": "r1"}}
    aws.client("sqs").send_message(QueueUrl=queue.url, MessageBody="waits", MessageAttributes=attributes)
    functions.update_event_source_mapping(UUID=mapping["UUID"], Enabled=True)
    wait_until(lambda: len(function.got()) == 1)
    (record,) = function.got()[0]["Records"]
    assert record["body"] == "waits"
    lists: dict[str, Any] = {"stringListValues": [], "binaryListValues": []}
    assert record["messageAttributes"]["run"] == {"stringValue": "r1", "dataType": "String", **lists}
    assert record["md5OfMessageAttributes"]


def test_an_invocation_answers_with_its_version_and_the_end_of_its_log(aws: AwsServer, function: Function) -> None:
    answer = aws.client("lambda").invoke(FunctionName=function.arn, Payload=b'"text"', LogType="Tail")
    assert answer["ExecutedVersion"] == "$LATEST"
    assert '"got": "text"' in base64.b64decode(answer["LogResult"]).decode()
    with pytest.raises(ClientError, match="InvalidRequestContentException"):
        aws.client("lambda").invoke(FunctionName=function.arn, Payload=b"no json")


SCHEDULE_FACTS = yaml.safe_load(Path("tests/assets/schedule_expressions.yaml").read_text())


@pytest.mark.parametrize(
    "expression", [each for group in SCHEDULE_FACTS["refused"] for each in group["expressions"] if each]
)
def test_a_schedule_that_aws_refuses_is_refused_with_its_words(aws: AwsServer, queue: Queue, expression: str) -> None:
    scheduler, name = aws.client("scheduler"), queue.url.rsplit("/", 1)[1]
    settings = {"FlexibleTimeWindow": {"Mode": "OFF"}, "Target": {"Arn": queue.arn, "RoleArn": STATES}}
    with pytest.raises(ClientError) as refused:
        scheduler.create_schedule(Name=name, ScheduleExpression=expression, **settings)
    assert refused.value.response["Error"]["Code"] == "ValidationException"
    assert refused.value.response["Error"]["Message"] == f"Invalid Schedule Expression {expression}."
    scheduler.create_schedule(Name=name, ScheduleExpression="rate(30 days)", **settings)
    with pytest.raises(ClientError, match="Invalid Schedule Expression "):
        scheduler.update_schedule(Name=name, ScheduleExpression=expression, **settings)
    assert scheduler.get_schedule(Name=name)["ScheduleExpression"] == "rate(30 days)"
    scheduler.delete_schedule(Name=name)


@pytest.mark.parametrize("expression", [each for group in SCHEDULE_FACTS["accepted"] for each in group["expressions"]])
def test_a_schedule_that_aws_accepts_is_accepted(aws: AwsServer, queue: Queue, expression: str) -> None:
    scheduler, name = aws.client("scheduler"), queue.url.rsplit("/", 1)[1]
    scheduler.create_schedule(
        Name=name,
        ScheduleExpression=expression,
        FlexibleTimeWindow={"Mode": "OFF"},
        State="DISABLED",
        Target={"Arn": queue.arn, "RoleArn": STATES},
    )
    scheduler.delete_schedule(Name=name)


def test_a_schedule_of_an_unknown_time_zone_is_refused(aws: AwsServer, queue: Queue) -> None:
    with pytest.raises(ClientError, match="ValidationException"):
        aws.client("scheduler").create_schedule(
            Name="nowhere",
            ScheduleExpression="rate(30 days)",
            ScheduleExpressionTimezone="Europe/Atlantis",
            FlexibleTimeWindow={"Mode": "OFF"},
            Target={"Arn": queue.arn, "RoleArn": STATES},
        )


def test_a_schedule_that_cannot_be_read_stops_no_other_schedule(aws: AwsServer, queue: Queue) -> None:
    """The loop of the twin itself fires the good one, however the bad one came into the account."""
    from moto.core import DEFAULT_ACCOUNT_ID
    from moto.scheduler.models import scheduler_backends

    scheduler = aws.client("scheduler")
    settings: dict[str, Any] = {
        "FlexibleTimeWindow": {"Mode": "OFF"},
        "Target": {"Arn": queue.arn, "RoleArn": STATES, "Input": "{}"},
    }
    scheduler.create_schedule(Name="bad", ScheduleExpression="rate(30 days)", **settings)
    backend = scheduler_backends[DEFAULT_ACCOUNT_ID][scheduler.meta.region_name]
    backend.get_schedule(None, "bad").schedule_expression = "rate(10 minutess)"
    scheduler.create_schedule(Name="good", ScheduleExpression="rate(1 minute)", **settings)
    bodies = list[str]()

    def has_fired() -> bool:
        bodies.extend(queue.bodies())
        return bool(bodies)

    wait_until(has_fired)
    assert set(bodies) == {"{}"}
    for name in ("bad", "good"):
        scheduler.delete_schedule(Name=name)


@pytest.mark.parametrize("num_messages", [1, 2, 5])
@pytest.mark.parametrize("poison", ["hang", "segfault", "exit", "fill", "recurse", "raise"])
def test_one_message_that_defeats_its_function_fails_alone(
    aws: AwsServer, log_dir: Path, tmp_path: Path, poison: str, num_messages: int
) -> None:
    name, release = f"{poison}-of-{num_messages}", tmp_path / "release"
    function, dead = Function(aws, log_dir, name, module="poison"), Queue(aws, f"{name}-dead")
    redrive = json.dumps({"deadLetterTargetArn": dead.arn, "maxReceiveCount": 3})
    queue = Queue(aws, name, VisibilityTimeout="60", RedrivePolicy=redrive)
    aws.client("lambda").create_event_source_mapping(
        EventSourceArn=queue.arn,
        FunctionName=function.arn,
        FunctionResponseTypes=["ReportBatchItemFailures"],
        BatchSize=1,
        ScalingConfig={"MaximumConcurrency": 5},
    )
    bad = json.dumps({"do": poison, "until": str(release)})
    good = [json.dumps({"do": "nothing", "until": str(number)}) for number in range(1, num_messages)]
    queue.send(bad, *good)
    wait_until(lambda: sorted(function.got()) == good)  # a message that hangs still does
    release.touch()
    dead_letters: list[str] = []
    wait_until(lambda: bool(dead_letters.extend(dead.bodies()) or dead_letters))
    assert dead_letters == [bad]
    assert sorted(function.got()) == good


def test_a_schedule_sends_its_message_when_it_comes_due(aws: AwsServer, queue: Queue) -> None:
    name = "saturdays"
    aws.client("scheduler").create_schedule(
        Name=name,
        ScheduleExpression="cron(0 2 ? * SAT *)",
        ScheduleExpressionTimezone="Europe/Berlin",
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": queue.arn, "RoleArn": STATES, "Input": '{"at": "<aws.scheduler.scheduled-time>"}'},
    )
    aws.schedules.poll()
    assert queue.bodies() == []
    aws.schedules.clock.jump(aws.schedules.clock.now() + timedelta(days=7))
    wait_until(lambda: aws.targets.drain(1) and bool(_times(queue)))
    aws.client("scheduler").delete_schedule(Name=name)


def _times(queue: Queue) -> list[str]:
    """Times of the messages, each on the hour in Berlin, which is 0 or 1 in UTC."""
    times = [json.loads(body)["at"] for body in queue.bodies()]
    assert all(moment[10:] in ("T00:00:00Z", "T01:00:00Z") for moment in times)
    return times


def test_a_rate_comes_again_and_again_in_scaled_time(aws: AwsServer, function: Function) -> None:
    target = {"Arn": function.arn, "RoleArn": STATES, "Input": "{}"}
    settings = {"FlexibleTimeWindow": {"Mode": "OFF"}, "Target": target}
    aws.client("scheduler").create_schedule(Name="often", ScheduleExpression="rate(5 minutes)", **settings)
    wait_until(lambda: len(function.got()) == 1)  # half a second at this time scale
    aws.schedules.clock.jump(aws.schedules.clock.now() + timedelta(hours=5))
    wait_until(lambda: len(function.got()) == 2)
    aws.client("scheduler").delete_schedule(Name="often")


def test_executions_tell_how_they_begin_and_end_and_stopped_ones_take_their_children(
    aws: AwsServer, rule: Rule, queue: Queue
) -> None:
    wait = {"Wait": {"Type": "Wait", "Seconds": 100_000, "End": True}}
    child = state_machine(aws, "child-that-waits", wait)
    watch = {
        "Type": "Task",
        "Resource": "arn:aws:states:::states:startExecution.sync:2",
        "Parameters": {
            "StateMachineArn": child,
            "Name": "child",
            "Input": {"AWS_STEP_FUNCTIONS_STARTED_BY_EXECUTION_ID.$": "$$.Execution.Id"},
        },
        "End": True,
    }
    parent = state_machine(aws, "parent", {"Watch": watch})
    rule({"source": ["aws.states"], "detail": {"stateMachineArn": [parent]}}, {"Arn": queue.arn})
    stepfunctions = aws.client("stepfunctions")
    arn = stepfunctions.start_execution(stateMachineArn=parent, name="run", input='{"x": 1}')["executionArn"]
    children: Callable[[], list[str]] = lambda: [  # noqa: E731
        found["status"] for found in stepfunctions.list_executions(stateMachineArn=child)["executions"]
    ]
    wait_until(lambda: children() == ["RUNNING"])

    stepfunctions.stop_execution(executionArn=arn, error="Mistaken", cause="The wrong data.")

    wait_until(lambda: stepfunctions.describe_execution(executionArn=arn)["status"] == "ABORTED")
    assert aws.targets.drain(10), "a caller that reads the status finds the event being delivered"
    events = [json.loads(body) for body in queue.bodies()]
    assert [event["detail"]["status"] for event in events] == ["RUNNING", "ABORTED"]
    ended = events[1]["detail"]
    assert (ended["name"], ended["executionArn"], json.loads(ended["input"])) == ("run", arn, {"x": 1})
    assert events[1]["detail-type"] == "Step Functions Execution Status Change"
    redrive = ("redriveCount", "redriveDate", "redriveStatus", "redriveStatusReason")
    assert [tuple(event["detail"][name] for name in redrive) for event in events] == [
        (0, None, "NOT_REDRIVABLE", "Execution is RUNNING and cannot be redriven"),
        (0, None, "REDRIVABLE", None),
    ]
    wait_until(lambda: children() == ["ABORTED"])
    (stopped,) = stepfunctions.list_executions(stateMachineArn=child)["executions"]
    described = stepfunctions.describe_execution(executionArn=stopped["executionArn"])
    assert (described.get("error"), described["cause"]) == (None, "The parent execution was stopped.")


def test_each_function_has_the_credentials_of_its_role(aws: AwsServer, log_dir: Path) -> None:
    keys = set()
    for name in ("one", "other"):
        function = Function(aws, log_dir, f"credentials-{name}")
        aws.client("lambda").invoke(FunctionName=function.arn, Payload=b"{}")
        keys |= {record["key"] for record in function.records()}
    assert len(keys) == 2
    assert all(key.startswith("ASIA") for key in keys)


def test_a_function_is_invoked_through_its_alias(aws: AwsServer, function: Function) -> None:
    client, name = aws.client("lambda"), function.arn.rsplit(":", 1)[1]
    version = client.publish_version(FunctionName=name)["Version"]
    alias = client.create_alias(FunctionName=name, Name="live", FunctionVersion=version)["AliasArn"]
    call = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": alias, "Payload": {"n": 7}},
        "End": True,
    }
    machine = state_machine(aws, "calls-an-alias", {"Call": call})
    aws.client("stepfunctions").start_execution(stateMachineArn=machine, name="run")
    wait_until(lambda: function.got() == [{"n": 7}])


def test_access_entries_are_made_listed_described_and_deleted(aws: AwsServer) -> None:
    eks, role = aws.client("eks"), "arn:aws:iam::123456789012:role/somebody"
    eks.create_cluster(name="one", roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-0"]})
    eks.create_access_entry(clusterName="one", principalArn=role, kubernetesGroups=["group"])
    assert eks.list_access_entries(clusterName="one")["accessEntries"] == [role]
    described = eks.describe_access_entry(clusterName="one", principalArn=role)["accessEntry"]
    assert (described["principalArn"], described["kubernetesGroups"]) == (role, ["group"])
    with pytest.raises(ClientError, match="ResourceInUse"):
        eks.create_access_entry(clusterName="one", principalArn=role)
    eks.delete_access_entry(clusterName="one", principalArn=role)
    with pytest.raises(ClientError, match="ResourceNotFound"):
        eks.describe_access_entry(clusterName="one", principalArn=role)


def state_machine(aws: AwsServer, name: str, states: dict[str, Any]) -> str:
    definition = json.dumps({"StartAt": next(iter(states)), "States": states})
    created = aws.client("stepfunctions").create_state_machine(name=name, roleArn=STATES, definition=definition)
    return str(created["stateMachineArn"])


@pytest.mark.parametrize("call", ["describe_rule", "enable_rule", "disable_rule", "list_targets_by_rule"])
def test_a_rule_that_does_not_exist_is_refused_with_its_bus(aws: AwsServer, call: str) -> None:
    name = {"Rule" if call == "list_targets_by_rule" else "Name": "missing"}
    with pytest.raises(ClientError) as refused:
        getattr(aws.client("events"), call)(**name)
    assert refused.value.response["Error"] == {
        "Code": "ResourceNotFoundException",
        "Message": "Rule missing does not exist on EventBus default.",
    }
