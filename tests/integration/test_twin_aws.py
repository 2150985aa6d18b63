"""The twin's AWS: what moto alone cannot do, and Lambda without Docker."""

from __future__ import annotations

import base64
import hashlib
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError
from moto.core import DEFAULT_ACCOUNT_ID
from moto.dynamodb.exceptions import ConditionalCheckFailed
from moto.dynamodb.models import dynamodb_backends
from moto.eks import utils as eks_utils
from moto.stepfunctions.responses import StepFunctionResponse

from local.aws import lambda_runtime
from local.aws.deployment import CLUSTER_NAME, create_bucket, make_cluster
from local.aws.lambda_runtime import FunctionConfiguration, LambdaRuntime, Worker
from local.aws.server import REGION, AwsServer
from local.aws.template import empty_archive
from tests.waiting import wait_until
from trainer.staging import stored_checksum

ANSWER_OF_MOTO = StepFunctionResponse.get_execution_history


@pytest.fixture(scope="module")
def runtime(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaRuntime]:
    runtime = LambdaRuntime(
        {**aws.client_environment, "PATH": "/usr/bin"}, log_dir=tmp_path_factory.mktemp("lambda-logs")
    )
    runtime.start()
    runtime.wait_ready()
    yield runtime
    runtime.stop()


Execute = Callable[..., dict[str, Any]]


@pytest.fixture
def execute(aws: AwsServer, role: str, request: pytest.FixtureRequest) -> Execute:
    stepfunctions = aws.client("stepfunctions")

    def run(states: dict[str, Any], *, document: Any = None, name: str = "run") -> dict[str, Any]:
        machine_name = f"{request.node.name[:60]}-{name}"
        machine = stepfunctions.create_state_machine(
            name=machine_name, roleArn=role, definition=json.dumps({"StartAt": next(iter(states)), "States": states})
        )["stateMachineArn"]
        arn = stepfunctions.start_execution(stateMachineArn=machine, name=name, input=json.dumps(document or {}))[
            "executionArn"
        ]
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            description: dict[str, Any] = stepfunctions.describe_execution(executionArn=arn)
            if description["status"] != "RUNNING":
                return description
            time.sleep(0.02)
        raise AssertionError("the execution did not end")

    return run


def passing(**fields: Any) -> dict[str, Any]:
    return {"Type": "Pass", "End": True, **fields}


def test_variables_are_read_by_path(execute: Execute) -> None:
    ended = execute(
        {
            "Remember": {"Type": "Pass", "Assign": {"run.$": "$"}, "Next": "Recall"},
            "Recall": passing(Parameters={"deep.$": "$run.spec.items[1]", "sum.$": "States.MathAdd($run.n, 1)"}),
        },
        document={"spec": {"items": ["a", "b"]}, "n": 41},
    )
    assert json.loads(ended["output"]) == {"deep": "b", "sum": 42}


def test_choices_and_waits_read_variables(execute: Execute) -> None:
    ended = execute(
        {
            "Remember": {"Type": "Pass", "Assign": {"seconds": 1, "flag": None}, "Next": "Pause"},
            "Pause": {"Type": "Wait", "SecondsPath": "$seconds", "Next": "IsNull"},
            "IsNull": {
                "Type": "Choice",
                "Choices": [{"Variable": "$flag", "IsNull": True, "Next": "Yes"}],
                "Default": "No",
            },
            "Yes": {"Type": "Succeed"},
            "No": {"Type": "Fail"},
        }
    )
    assert ended["status"] == "SUCCEEDED"


def test_a_choice_compares_one_variable_with_another(execute: Execute) -> None:
    rule = {"Variable": "$left", "NumericLessThanPath": "$limits.right", "Next": "Less"}
    for left, right in ((1, 2), (2, 1), (2, 2)):
        states = {
            "Assign": {"Type": "Pass", "Assign": {"left": left, "limits": {"right": right}}, "Next": "Choose"},
            "Choose": {"Type": "Choice", "Choices": [rule], "Default": "NotLess"},
            "Less": {"Type": "Pass", "Result": True, "End": True},
            "NotLess": {"Type": "Pass", "Result": False, "End": True},
        }
        assert json.loads(execute(states, name=f"compare-{left}-{right}")["output"]) is (left < right)


def test_times_are_compared_as_the_language_writes_them(execute: Execute) -> None:
    rule = {"Variable": "$$.State.EnteredTime", "TimestampGreaterThanPath": "$time_limit", "Next": "Over"}
    passed = ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123Z", "2026-01-01T05:00:00.123456+05:00")
    others = ("2126-01-01T00:00:00.123Z", "2126-01-01T00:00:00Z")
    for number, time_limit in enumerate((*passed, *others)):
        states = {
            "Assign": {"Type": "Pass", "Assign": {"time_limit": time_limit}, "Next": "Choose"},
            "Choose": {"Type": "Choice", "Choices": [rule], "Default": "NotYet"},
            "Over": {"Type": "Pass", "Result": True, "End": True},
            "NotYet": {"Type": "Pass", "Result": False, "End": True},
        }
        ended = execute(states, name=f"time-{number}")
        assert json.loads(ended["output"]) is (time_limit in passed)


def test_the_start_time_is_a_text(execute: Execute) -> None:
    ended = execute({"Look": passing(Parameters={"at.$": "$$.Execution.StartTime"})})
    assert json.loads(ended["output"])["at"].endswith("Z")


def test_waits_take_their_share_of_time(execute: Execute) -> None:
    ended = execute({"Pause": {"Type": "Wait", "Seconds": 100, "End": True}})
    assert (ended["stopDate"] - ended["startDate"]).total_seconds() < 30


def test_a_child_execution_is_awaited_and_its_output_read(execute: Execute, aws: AwsServer, role: str) -> None:
    child = aws.client("stepfunctions").create_state_machine(
        name="child",
        roleArn=role,
        definition=json.dumps({"StartAt": "A", "States": {"A": passing(Parameters={"twice.$": "$.n"})}}),
    )["stateMachineArn"]
    ended = execute(
        {
            "Watch": {
                "Type": "Task",
                "Resource": "arn:aws:states:::states:startExecution.sync:2",
                "Parameters": {"StateMachineArn": child, "Name": "window-1", "Input": {"n.$": "$.n"}},
                "Assign": {"n.$": "$.Output.twice"},
                "ResultPath": None,
                "Next": "Tell",
            },
            "Tell": passing(Parameters={"n.$": "$n"}),
        },
        document={"n": 7},
    )
    assert json.loads(ended["output"]) == {"n": 7}


def test_a_definition_is_parsed_once_and_executed_each_time_again(
    execute: Execute, aws: AwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from moto.stepfunctions.parser.asl.antlr.runtime.ASLParser import ASLParser

    parsed: list[Any] = []
    parse = ASLParser.state_machine
    monkeypatch.setattr(ASLParser, "state_machine", lambda self: parsed.append(self) or parse(self))
    states = {
        "Remember": {"Type": "Pass", "Assign": {"word.$": "$.word"}, "Next": "Recall"},
        "Recall": passing(Parameters={"parsed once.$": "$word"}),
    }
    ended = [execute(states, document={"word": word}, name=f"anew-{word}") for word in ("one", "two")]
    assert [json.loads(each["output"])["parsed once"] for each in ended] == ["one", "two"]
    assert len(parsed) == 1


def test_a_definition_that_does_not_parse_is_refused_each_time(aws: AwsServer, role: str) -> None:
    definition = json.dumps({"Comment": 3, "StartAt": "A", "States": {"A": {"Type": "Succeed"}}})
    for _ in range(2):
        with pytest.raises(ClientError, match="ASLParserException"):
            aws.client("stepfunctions").create_state_machine(name="bad", roleArn=role, definition=definition)


def test_roles_of_node_groups_are_checked_with_one_session(aws: AwsServer) -> None:
    assert eks_utils.Session() is eks_utils.Session()
    make_cluster(aws)
    with pytest.raises(ClientError, match="Invalid Role Arn"):
        aws.client("eks").create_nodegroup(clusterName=CLUSTER_NAME, nodegroupName="a", nodeRole="a", subnets=["a"])


def test_a_parent_does_not_ask_for_a_child_that_runs(
    execute: Execute, aws: AwsServer, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    describe = StepFunctionResponse.describe_execution

    def counted(self: Any) -> Any:
        asked.append(self._get_param("executionArn"))
        return describe(self)

    monkeypatch.setattr(StepFunctionResponse, "describe_execution", counted)
    child = aws.client("stepfunctions").create_state_machine(
        name="slow-child",
        roleArn=role,
        definition=json.dumps({"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": 100, "End": True}}}),
    )["stateMachineArn"]
    resource = "arn:aws:states:::states:startExecution.sync:2"
    execute({"Watch": {"Type": "Task", "Resource": resource, "Parameters": {"StateMachineArn": child}, "End": True}})
    assert len([arn for arn in asked if ":slow-child:" in arn]) == 1


def test_results_with_times_can_be_described(execute: Execute, aws: AwsServer) -> None:
    create_bucket(aws, "with-a-creation-date")
    ended = execute({"List": {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:s3:listBuckets", "End": True}})
    assert ended["status"] == "SUCCEEDED"
    created = json.loads(ended["output"])["Buckets"][0]["CreationDate"]
    assert datetime.fromisoformat(created).tzinfo is not None
    assert aws.client("stepfunctions").get_execution_history(executionArn=ended["executionArn"])["events"]


MACHINE: dict[str, Any] = {
    "Pass": {"Type": "Pass", "Result": {"at": "2026-11-23T10:00:00Z", "is": None}, "Next": "Wait"},
    "Wait": {"Type": "Wait", "Seconds": 1, "Next": "List"},
    "List": {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:s3:listBuckets", "Next": "Missing"},
    "Missing": {
        "Type": "Task",
        "Resource": "arn:aws:states:::dynamodb:getItem",
        "Parameters": {"TableName": "absent", "Key": {"a": {"S": "b"}}},
        "TimeoutSeconds": 9,
        "Retry": [{"ErrorEquals": ["States.ALL"], "MaxAttempts": 1}],
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "Fail"}],
        "Next": "Fail",
    },
    "Fail": {"Type": "Fail", "Error": "Mistaken", "Cause": "The wrong data."},
}
"""Most types of events, with details."""


def test_histories_are_those_of_moto_in_pages_and_in_the_order_asked_for(
    execute: Execute, aws: AwsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    arn = execute(MACHINE)["executionArn"]
    stepfunctions = aws.client("stepfunctions")

    def read(**options: Any) -> list[dict[str, Any]]:
        pages = stepfunctions.get_paginator("get_execution_history").paginate(executionArn=arn, **options)
        return [event for page in pages for event in page["events"]]

    found = {order: read(reverseOrder=order, PaginationConfig={"PageSize": 4}) for order in (False, True)}
    first = stepfunctions.get_execution_history(executionArn=arn, maxResults=4)
    bare = read(includeExecutionData=False)
    with pytest.raises(ClientError, match="InvalidToken"):
        stepfunctions.get_execution_history(executionArn=arn, nextToken="999")
    with pytest.raises(ClientError, match="less than or equal to 1000"):
        stepfunctions.get_execution_history(executionArn=arn, maxResults=1001)
    with pytest.raises(ClientError, match="ExecutionDoesNotExist"):
        stepfunctions.get_execution_history(executionArn=f"{arn}-absent")
    monkeypatch.setattr(StepFunctionResponse, "get_execution_history", ANSWER_OF_MOTO)
    expected = read()

    assert found == {False: expected, True: expected[::-1]}
    assert (first["events"], len(expected) > 12) == (expected[:4], True)
    assert [event["type"] for event in bare] == [event["type"] for event in expected]
    assert [event for event in expected if "'output'" in str(event)]
    assert not [event for event in bare if "'input'" in str(event) or "'output'" in str(event)]


def test_of_many_conditional_writes_at_once_one_is_made(aws: AwsServer) -> None:
    table = aws.client("dynamodb")
    table.create_table(
        TableName="raced",
        KeySchema=[{"AttributeName": "item_id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "item_id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    backend = dynamodb_backends[DEFAULT_ACCOUNT_ID][table.meta.region_name]
    barrier = threading.Barrier(8)

    def write(key: str) -> bool:
        barrier.wait()
        try:
            backend.put_item("raced", {"item_id": {"S": key}}, condition_expression="attribute_not_exists(item_id)")
        except ConditionalCheckFailed:
            return False
        return True

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)  # threads get in each other's way more often
    try:
        with ThreadPoolExecutor(8) as pool:
            for attempt in range(60):
                assert sum(pool.map(write, [str(attempt)] * 8)) == 1
    finally:
        sys.setswitchinterval(interval)


def test_a_presigned_request_reaches_its_service(aws: AwsServer) -> None:
    import urllib.request

    sts = aws.client("sts")
    url = sts.generate_presigned_url("get_caller_identity", HttpMethod="GET")
    assert url.startswith(aws.endpoint)
    with urllib.request.urlopen(url) as answer:
        assert b"GetCallerIdentityResult" in answer.read()


def function(runtime: LambdaRuntime, tmp_path: Path, **fields: Any) -> FunctionConfiguration:
    return FunctionConfiguration(
        **{
            "name": f"sample-{tmp_path.name}",
            "arn": "arn:aws:lambda:us-west-2:123456789012:function:sample",
            "handler": "tests.integration.handlers.sample.lambda_handler",
            "environment": {"VARIABLE": "value", "PATH": "/usr/bin"},
            "timeout_seconds": 20.0,
            "memory_mib": 512,
            "log": str(tmp_path / "function.log"),
            **fields,
        }
    )


def test_a_function_sees_its_own_environment_and_nothing_of_ours(
    runtime: LambdaRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    payload, errored = runtime.invoke(function(runtime, tmp_path), {"x": 1})
    result = json.loads(payload)
    assert not errored
    assert (result["variable"], result["home"], result["echo"]) == ("value", None, {"x": 1})
    assert 0 < result["milliseconds_left"] <= 20_000
    assert "handled {'x': 1}" in (tmp_path / "function.log").read_text()


def test_a_warm_worker_is_used_again(runtime: LambdaRuntime, tmp_path: Path) -> None:
    pids = {json.loads(runtime.invoke(function(runtime, tmp_path), {})[0])["pid"] for _ in range(3)}
    assert len(pids) == 1


def test_invocations_beyond_the_limit_wait_for_their_turn(
    runtime: LambdaRuntime, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runtime, "_free", threading.BoundedSemaphore(1))
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: runtime.invoke(function(runtime, tmp_path), {}), range(4)))
    assert len({json.loads(answer)["pid"] for answer, _ in answers}) == 1


def test_an_exception_is_an_error_of_its_name(runtime: LambdaRuntime, tmp_path: Path) -> None:
    payload, errored = runtime.invoke(function(runtime, tmp_path), {"do": "raise"})
    assert errored
    assert json.loads(payload)["errorType"] == "GraphsMelted"
    assert json.loads(payload)["errorMessage"] == "too hot"


def test_a_function_that_takes_too_long_is_killed(runtime: LambdaRuntime, tmp_path: Path) -> None:
    payload, errored = runtime.invoke(function(runtime, tmp_path, timeout_seconds=1.0), {"do": "sleep"})
    assert errored
    assert json.loads(payload)["errorType"] == "Sandbox.Timedout"
    assert json.loads(payload)["errorMessage"].endswith("Task timed out after 1.00 seconds")


def test_a_worker_that_dies_is_an_exit_error_and_the_next_one_is_new(runtime: LambdaRuntime, tmp_path: Path) -> None:
    payload, errored = runtime.invoke(function(runtime, tmp_path), {"do": "exit"})
    assert (errored, json.loads(payload)["errorType"]) == (True, "Runtime.ExitError")
    assert runtime.invoke(function(runtime, tmp_path), {})[1] is False


def test_a_function_beyond_its_memory_is_killed(runtime: LambdaRuntime, tmp_path: Path) -> None:
    payload, errored = runtime.invoke(function(runtime, tmp_path, memory_mib=256), {"do": "allocate"})
    assert errored
    assert json.loads(payload)["errorType"] == "Runtime.ExitError"
    assert json.loads(payload)["errorMessage"].endswith("signal: killed")


@pytest.mark.parametrize("do", ["write", "make"])
def test_a_function_writes_below_tmp_only(runtime: LambdaRuntime, tmp_path: Path, do: str) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        _, errored = runtime.invoke(function(runtime, tmp_path), {"do": do, "path": f"{scratch}/made"})
        assert (errored, Path(scratch, "made").exists()) == (False, True)
    outside = Path(__file__).with_name("made")
    for path in (outside, outside.relative_to(Path.cwd())):
        payload, errored = runtime.invoke(function(runtime, tmp_path), {"do": do, "path": str(path)})
        assert (errored, outside.exists()) == (True, False)
        assert json.loads(payload)["errorMessage"] == f"[Errno 30] Read-only file system: '{outside}'"


def test_a_function_has_files_without_a_name_in_tmp_only(runtime: LambdaRuntime, tmp_path: Path) -> None:
    for path, refused in (("/tmp", False), (str(Path.cwd()), True)):
        payload, errored = runtime.invoke(function(runtime, tmp_path), {"do": "scratch", "path": path})
        assert errored == refused, payload


def test_the_state_machine_catches_a_functions_error_by_its_name(
    execute: Execute, aws: AwsServer, runtime: LambdaRuntime, role: str
) -> None:
    arn = aws.client("lambda").create_function(
        FunctionName="sample",
        Runtime="python3.12",
        Role=role,
        Handler="tests.integration.handlers.sample.lambda_handler",
        Timeout=20,
        MemorySize=512,
        Code={"ZipFile": empty_archive()},
    )["FunctionArn"]
    ended = execute(
        {
            "Call": {
                "Type": "Task",
                "Resource": "arn:aws:states:::lambda:invoke",
                "Parameters": {"FunctionName": arn, "Payload": {"do": "raise"}},
                "Catch": [{"ErrorEquals": ["GraphsMelted"], "Assign": {"error.$": "$"}, "Next": "Describe"}],
                "End": True,
            },
            "Describe": {"Type": "Pass", "Parameters": {"error.$": "$error"}, "Next": "Fail"},
            "Fail": {"Type": "Fail", "ErrorPath": "$.error.Error", "CausePath": "$.error.Cause"},
        }
    )
    assert (ended["status"], ended["error"]) == ("FAILED", "GraphsMelted")
    assert json.loads(ended["cause"])["errorMessage"] == "too hot"


@pytest.mark.parametrize("then", ["Next", "Raise"])
def test_an_execution_that_is_stopped_while_a_function_works_stays_stopped(
    then: str, aws: AwsServer, runtime: LambdaRuntime, role: str
) -> None:
    function = aws.client("lambda").create_function(
        FunctionName=f"working-{then}",
        Runtime="python3.12",
        Role=role,
        Handler="tests.integration.handlers.sample.lambda_handler",
        Timeout=20,
        MemorySize=512,
        Code={"ZipFile": empty_archive()},
    )["FunctionArn"]
    call = {
        "Type": "Task",
        "Resource": "arn:aws:states:::lambda:invoke",
        "Parameters": {"FunctionName": function, "Payload": {"do": "sleep", "seconds": 1, "then": then}},
        "Catch": [{"ErrorEquals": ["States.ALL"], "Next": "End"}],
        "Next": "End",
    }
    stepfunctions = aws.client("stepfunctions")
    arn = stepfunctions.start_execution(
        stateMachineArn=stepfunctions.create_state_machine(
            name=f"stopped-{then}",
            roleArn=role,
            definition=json.dumps({"StartAt": "Call", "States": {"Call": call, "End": {"Type": "Succeed"}}}),
        )["stateMachineArn"]
    )["executionArn"]

    def history() -> list[str]:
        return [event["type"] for event in stepfunctions.get_execution_history(executionArn=arn)["events"]]

    wait_until(lambda: "TaskStarted" in history())
    stepfunctions.stop_execution(executionArn=arn, error="Mistaken", cause="The wrong data.")

    def end() -> tuple[str, ...]:
        found = stepfunctions.describe_execution(executionArn=arn)
        return found["status"], found["error"], found["cause"], str(found["stopDate"])

    ended = end()
    assert ended[:3] == ("ABORTED", "Mistaken", "The wrong data.")
    before = history()
    assert before[-1] == "ExecutionAborted"
    wait_until(lambda: not runtime._busy)
    stepfunctions.stop_execution(executionArn=arn, error="Other", cause="Another one.")
    time.sleep(0.2)  # the thread of the execution reads the answer
    assert end() == ended
    assert history() == before


def test_a_function_writes_to_the_group_that_it_names(aws: AwsServer, runtime: LambdaRuntime, role: str) -> None:
    aws.client("lambda").create_function(
        FunctionName="writes",
        Role=role,
        Runtime="python3.11",
        Handler="tests.integration.handlers.writing.lambda_handler",
        Code={"ZipFile": empty_archive()},
        LoggingConfig={"LogGroup": "writings"},
    )
    logs = aws.client("logs")
    logs.create_log_group(logGroupName="writings")
    (group,) = logs.describe_log_groups(logGroupNamePrefix="writings")["logGroups"]
    shown: list[list[str]] = []
    for text in ("first", "second"):
        aws.client("lambda").invoke(FunctionName="writes", Payload=json.dumps(text))
        events = logs.filter_log_events(logGroupIdentifier=group["arn"], logStreamNamePrefix="tw")["events"]
        shown.append([event["message"] for event in events])
    at = '{"message": "%s", "timestamp": "2026-11-28 07:00:00,250+0000"}'
    assert shown == [["first", at % "first"], ["first", at % "first", "second", at % "second"]]
    assert {event["timestamp"] for event in events} == {1_795_849_200_250}
    (stream,) = logs.describe_log_streams(logGroupName="writings")["logStreams"]
    assert logs.get_log_events(logGroupName="writings", logStreamName=stream["logStreamName"])["events"]
    assert logs.filter_log_events(logGroupName="writings", logStreamNamePrefix="other")["events"] == []
    configuration = aws.client("lambda").get_function_configuration(FunctionName="writes")
    assert configuration["LoggingConfig"]["LogGroup"] == "writings"


def test_stopping_ends_what_is_being_invoked(aws: AwsServer, tmp_path: Path) -> None:
    # From here on moto calls the runtimes of these last tests.
    runtime = LambdaRuntime({**aws.client_environment, "PATH": "/usr/bin"}, log_dir=tmp_path)
    runtime.start()
    runtime.wait_ready()
    answers: list[tuple[str, bool]] = []
    caller = threading.Thread(
        target=lambda: answers.append(runtime.invoke(function(runtime, tmp_path, timeout_seconds=600), {"do": "sleep"}))
    )
    caller.start()
    log = tmp_path / "function.log"
    while not log.exists():
        time.sleep(0.02)
    runtime.stop()
    caller.join(10)
    assert not caller.is_alive()
    assert json.loads(answers[0][0])["errorType"] == "Runtime.ExitError"


def test_stopping_ends_a_worker_that_is_made_meanwhile(
    aws: AwsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runtime = LambdaRuntime({**aws.client_environment, "PATH": "/usr/bin"}, log_dir=tmp_path)
    runtime.start()
    runtime.wait_ready()

    class MadeWhileStopping(Worker):
        def __init__(self, address: str, function: FunctionConfiguration) -> None:
            super().__init__(address, function)
            runtime.stop()

    monkeypatch.setattr(lambda_runtime, "Worker", MadeWhileStopping)
    answer, errored = runtime.invoke(function(runtime, tmp_path, timeout_seconds=600), {"do": "sleep"})
    assert (json.loads(answer)["errorType"], errored) == ("Runtime.ExitError", True)


CHECK = b"123456789"
"""The text of which catalogues of CRCs give the check values."""


def encoded(check_value: int, size: int) -> str:
    return base64.b64encode(check_value.to_bytes(size, "big")).decode()


@pytest.mark.parametrize(
    ("given", "algorithm", "value"),
    [
        ({}, "CRC64NVME", encoded(0xAE8B14860A799888, 8)),
        ({"ChecksumAlgorithm": "CRC32"}, "CRC32", encoded(0xCBF43926, 4)),
        ({"ChecksumAlgorithm": "CRC32C"}, "CRC32C", encoded(0xE3069283, 4)),
        ({"ChecksumAlgorithm": "SHA256"}, "SHA256", base64.b64encode(hashlib.sha256(CHECK).digest()).decode()),
    ],
)
def test_s3_keeps_a_checksum_of_every_object_and_tells_none_of_a_range(
    aws: AwsServer, given: dict[str, Any], algorithm: str, value: str
) -> None:
    config = Config(request_checksum_calculation="when_required", response_checksum_validation="when_required")
    s3 = boto3.Session().client(
        "s3",
        endpoint_url=aws.endpoint,
        region_name=REGION,
        config=config,
        aws_access_key_id=aws.owner_credentials["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=aws.owner_credentials["AWS_SECRET_ACCESS_KEY"],
    )
    bucket = f"checksums-{algorithm.lower()}"
    create_bucket(aws, bucket)
    where = {"Bucket": bucket, "Key": "k"}
    s3.put_object(**where, Body=CHECK, **given)
    for ask in (s3.head_object, s3.get_object):
        whole, unasked, part = ask(**where, ChecksumMode="ENABLED"), ask(**where), None
        assert (whole[f"Checksum{algorithm}"], whole["ChecksumType"]) == (value, "FULL_OBJECT")
        assert "ChecksumType" not in unasked
    part = s3.get_object(**where, ChecksumMode="ENABLED", Range="bytes=0-3")
    assert [name for name in part if name.startswith("Checksum")] == []


def test_an_upload_in_parts_has_a_checksum_of_its_parts_that_the_stager_understands(aws: AwsServer) -> None:
    s3, content = aws.client("s3"), bytes(range(256)) * 4096 * 6
    create_bucket(aws, "parts")
    where = {"Bucket": "parts", "Key": "k"}
    upload = s3.create_multipart_upload(**where, ChecksumAlgorithm="CRC32")["UploadId"]
    size = 5 * 2**20
    parts = []
    for number, start in enumerate(range(0, len(content), size), start=1):
        given = {**where, "UploadId": upload, "PartNumber": number, "Body": content[start : start + size]}
        parts.append({"PartNumber": number, "ETag": s3.upload_part(**given, ChecksumAlgorithm="CRC32")["ETag"]})
    etag = s3.complete_multipart_upload(**where, UploadId=upload, MultipartUpload={"Parts": parts})["ETag"]
    stored = stored_checksum.find(s3, bucket="parts", key="k", size=len(content), etag=etag)
    assert stored is not None
    assert (stored.algorithm, stored.part_bytes) == ("CRC32", size)
    verification = stored_checksum.Verification(stored)
    verification.update(0, content)
    verification.require("s3://parts/k")
