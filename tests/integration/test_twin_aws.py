"""The twin's AWS: what moto alone cannot do, and Lambda without Docker."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from moto.core.config import default_user_config

from local.aws.deployment import create_bucket, empty_archive
from local.aws.lambda_runtime import FunctionConfiguration, LambdaRuntime
from local.aws.server import AwsServer

ROLE_POLICY = json.dumps({"Version": "2012-10-17", "Statement": []})


@pytest.fixture(scope="module")
def aws() -> Iterator[AwsServer]:
    server = AwsServer(time_scale=100)
    server.start()
    yield server
    server.stop()


@pytest.fixture(scope="module")
def runtime(aws: AwsServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LambdaRuntime]:
    runtime = LambdaRuntime(
        {**aws.client_environment, "PATH": "/usr/bin"}, log_dir=tmp_path_factory.mktemp("lambda-logs")
    )
    runtime.start()
    runtime.wait_ready()
    yield runtime
    runtime.stop()


@pytest.fixture(scope="module")
def role(aws: AwsServer) -> str:
    created = aws.client("iam").create_role(RoleName="test", AssumeRolePolicyDocument=ROLE_POLICY)
    return str(created["Role"]["Arn"])


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


def test_results_with_times_can_be_described(execute: Execute, aws: AwsServer) -> None:
    create_bucket(aws, "with-a-creation-date")
    ended = execute({"List": {"Type": "Task", "Resource": "arn:aws:states:::aws-sdk:s3:listBuckets", "End": True}})
    assert ended["status"] == "SUCCEEDED"
    created = json.loads(ended["output"])["Buckets"][0]["CreationDate"]
    assert datetime.fromisoformat(created).tzinfo is not None
    assert aws.client("stepfunctions").get_execution_history(executionArn=ended["executionArn"])["events"]


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


def test_memory_is_limited(runtime: LambdaRuntime, tmp_path: Path) -> None:
    payload, errored = runtime.invoke(function(runtime, tmp_path, memory_mib=256), {"do": "allocate"})
    assert errored
    assert json.loads(payload)["errorType"] == "MemoryError"


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


def test_stopping_ends_what_is_being_invoked(aws: AwsServer, tmp_path: Path) -> None:
    # The last test here: moto calls this runtime from now on.
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


def test_a_server_that_has_stopped_leaves_motos_settings_as_they_were() -> None:
    """Tests of the functions use moto in the same process, where nothing shall run by itself."""
    before = dict(default_user_config)
    server = AwsServer(time_scale=100)
    server.start()
    assert default_user_config != before or before.get("stepfunctions") == {"execute_state_machine": True}
    server.stop()
    assert dict(default_user_config) == before
