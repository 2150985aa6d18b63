"""What Step Functions refuses, the twin refuses: definitions, inputs, data, paths, names and histories.

The second engine comes to the same refusals of data, event by event.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws import refusals
from local.aws.lambda_runtime import LambdaRuntime
from local.aws.refusals import MAX_PAYLOAD_BYTES
from local.aws.server import AwsServer
from local.aws.template import empty_archive
from tests.asl.replay import assert_run_replayed
from tests.waiting import wait_until

State = dict[str, Any]
END: State = {"Type": "Succeed"}
CALL = "arn:aws:states:::lambda:invoke"
ALL = ["States.ALL"]


@pytest.fixture(scope="module")
def function(aws: AwsServer, role: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A function that answers with as many letters as it is asked for."""
    logs: Path = tmp_path_factory.mktemp("lambda-logs")
    runtime = LambdaRuntime({**aws.client_environment, "PATH": "/usr/bin"}, log_dir=logs)
    runtime.start()
    yield aws.client("lambda").create_function(
        FunctionName="sample",
        Runtime="python3.12",
        Role=role,
        Handler="tests.integration.handlers.sample.lambda_handler",
        Timeout=20,
        MemorySize=512,
        Code={"ZipFile": empty_archive()},
    )["FunctionArn"]
    runtime.stop()


class Machines:
    """Makes state machines and executes them."""

    def __init__(self, aws: AwsServer, role: str) -> None:
        self.client, self._role = aws.client("stepfunctions"), role
        self._numbers = itertools.count()

    def make(self, definition: Any) -> str:
        text = definition if isinstance(definition, str) else json.dumps(definition)
        made = self.client.create_state_machine(name=f"m{next(self._numbers)}", roleArn=self._role, definition=text)
        return str(made["stateMachineArn"])

    def ended(self, states: dict[str, State], document: Any = None, *, seconds: float = 30) -> dict[str, Any]:
        machine = self.make({"StartAt": next(iter(states)), "States": states})
        text = json.dumps({} if document is None else document, ensure_ascii=False)
        arn = self.client.start_execution(stateMachineArn=machine, name="run", input=text)["executionArn"]
        wait_until(lambda: self.client.describe_execution(executionArn=arn)["status"] != "RUNNING")
        described: dict[str, Any] = self.client.describe_execution(executionArn=arn)
        return described

    def replayed(self, ended: dict[str, Any]) -> dict[str, Any]:
        """The same, if the second engine comes to the same end."""
        assert_run_replayed(self.client, ended["executionArn"])
        return ended

    def events(self, ended: dict[str, Any]) -> list[dict[str, Any]]:
        pages = self.client.get_paginator("get_execution_history").paginate(executionArn=ended["executionArn"])
        return [event for page in pages for event in page["events"]]


@pytest.fixture(scope="module")
def machines(aws: AwsServer, role: str) -> Machines:
    return Machines(aws, role)


def choosing(rule: State, **fields: Any) -> dict[str, State]:
    return {"Choose": {"Type": "Choice", "Choices": [{**rule, "Next": "Yes"}], **fields}, "Yes": END}


def calling(function: str, payload: State, **fields: Any) -> State:
    parameters = {"FunctionName": function, "Payload": payload}
    return {"Type": "Task", "Resource": CALL, "Parameters": parameters, "End": True, **fields}


# --- Paths.


@pytest.mark.parametrize(
    ("rule", "path"),
    [
        ({"Variable": "$.missing", "BooleanEquals": True}, "$.missing"),
        ({"Variable": "$.missing", "IsNull": True}, "$.missing"),
        ({"Variable": "$missing", "StringEquals": "a"}, "$missing"),
        ({"Variable": "$$.Missing", "StringEquals": "a"}, "$$.Missing"),
        ({"Variable": "$.n", "NumericLessThanPath": "$.missing"}, "$.missing"),
        ({"Variable": "$.n", "NumericLessThanPath": "$missing"}, "$missing"),
        ({"Not": {"Variable": "$.missing", "IsNull": True}}, "$.missing"),
    ],
)
def test_a_choice_on_a_missing_path_fails_although_there_is_a_default(
    machines: Machines, rule: State, path: str
) -> None:
    ended = machines.ended(choosing(rule, Default="Yes"), {"n": 1})
    if "Not" not in rule:  # our texts have none
        machines.replayed(ended)
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Runtime")
    assert ended["cause"] == (
        f"An error occurred while executing the state 'Choose' (entered at the event id #2). Invalid path '{path}': "
        "The choice state's condition path references an invalid value."
    )
    types = [event["type"] for event in machines.events(ended)]
    assert types == ["ExecutionStarted", "ChoiceStateEntered", "ExecutionFailed"]


def test_a_choice_may_ask_whether_a_path_is_present(machines: Machines) -> None:
    rule = {"And": [{"Variable": "$.n", "IsPresent": True}, {"Variable": "$.missing", "IsPresent": False}]}
    assert machines.ended(choosing(rule), {"n": 1})["status"] == "SUCCEEDED"


def test_a_choice_without_a_matching_rule_fails(machines: Machines) -> None:
    ended = machines.replayed(machines.ended(choosing({"Variable": "$.n", "IsNull": True}), {"n": 1}))
    assert ended["error"] == "States.Runtime"
    assert ended["cause"].endswith("Failed to transition out of the state. The state does not point to a next state.")


CATCHERS = [ALL, ["States.TaskFailed"], ["States.Runtime"]]


@pytest.mark.parametrize("names", CATCHERS)
def test_a_missing_path_in_parameters_is_neither_retried_nor_caught(
    machines: Machines, function: str, names: list[str]
) -> None:
    rules = {"Retry": [{"ErrorEquals": names}], "Catch": [{"ErrorEquals": names, "Next": "Caught"}]}
    states = {"Call": calling(function, {"x.$": "$.missing"}, **rules), "Caught": END}
    ended = machines.replayed(machines.ended(states, {"n": "ä"}))
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Runtime")
    assert ended["cause"] == (
        "An error occurred while executing the state 'Call' (entered at the event id #2). The JSONPath '$.missing' "
        """specified for the field 'x.$' could not be found in the input '{"n":"ä"}'"""
    )
    types = [event["type"] for event in machines.events(ended)]
    assert types == ["ExecutionStarted", "TaskStateEntered", "ExecutionFailed"]


# --- Sizes.


def letters(number: int, *, of: str = "x") -> State:
    return {"do": "letters", "number": number, "of": of}


OVERHEAD = len('{"ExecutedVersion":"$LATEST","Payload":"","StatusCode":200}') + 1_000
"""More than what is around the payload of `lambda:invoke`."""


@pytest.mark.parametrize("of", ["x", "ä"])
@pytest.mark.parametrize("names", [ALL, ["States.TaskFailed"]])
def test_a_result_beyond_256_kib_is_caught_by_a_wildcard(
    machines: Machines, function: str, names: list[str], of: str
) -> None:
    rules = {"Retry": [{"ErrorEquals": names}], "Catch": [{"ErrorEquals": names, "Next": "Caught"}]}
    size = len(of.encode())
    fits = calling(function, letters((MAX_PAYLOAD_BYTES - OVERHEAD) // size, of=of), OutputPath="$.StatusCode", **rules)
    assert machines.ended({"Call": fits, "Caught": END})["status"] == "SUCCEEDED"
    large = calling(function, letters(MAX_PAYLOAD_BYTES // size, of=of), OutputPath="$.StatusCode", **rules)
    ended = machines.replayed(machines.ended({"Call": {**large, "Retry": []}, "Caught": END}))
    assert ended["status"] == "SUCCEEDED"
    caught = json.loads(ended["output"])
    assert caught["Error"] == "States.DataLimitExceeded"
    assert caught["Cause"].endswith(
        "returned a result with a size exceeding the maximum number of bytes service limit."
    )


def test_a_result_beyond_256_kib_is_caught_by_its_name(machines: Machines, function: str) -> None:
    catch = [{"ErrorEquals": ["States.DataLimitExceeded"], "Next": "Caught"}]
    states = {"Call": calling(function, letters(MAX_PAYLOAD_BYTES), Catch=catch), "Caught": END}
    assert machines.replayed(machines.ended(states))["status"] == "SUCCEEDED"


def test_parameters_and_outputs_beyond_256_kib_fail(machines: Machines, function: str) -> None:
    half, twice = "x" * (MAX_PAYLOAD_BYTES // 2), {"a.$": "$", "b.$": "$"}
    catch = [{"ErrorEquals": ALL, "Next": "Caught"}]
    for state in (calling(function, twice, Catch=catch), {"Type": "Pass", "Parameters": twice, "End": True}):
        ended = machines.ended({"Large": state, "Caught": END} if "Catch" in state else {"Large": state}, half)
        assert (ended["status"], ended["error"]) == ("FAILED", "States.DataLimitExceeded")


def test_what_a_state_assigns_and_all_variables_of_an_execution_have_limits(
    machines: Machines, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    half = "x" * (MAX_PAYLOAD_BYTES // 2)
    catch = [{"ErrorEquals": ALL, "Next": "Caught"}]
    one = {"Type": "Pass", "Assign": {"a.$": "$"}, "Next": "B"}
    assert (
        machines.ended({"A": one, "B": {"Type": "Pass", "Assign": {"b.$": "$"}, "End": True}}, half)["status"]
        == "SUCCEEDED"
    )
    twice = {"a.$": "$.Payload.letters", "b.$": "$.Payload.letters"}
    for state in (
        {"Type": "Pass", "Parameters": {"Payload": {"letters.$": "$"}}, "Assign": twice, "End": True},
        calling(function, letters(len(half)), Assign=twice, Catch=catch),
    ):
        ended = machines.ended({"A": state, "Caught": END} if "Catch" in state else {"A": state}, half)
        assert (ended["status"], ended["error"]) == ("FAILED", "States.DataLimitExceeded")
        assert "262144 bytes for those of one state" in ended["cause"]
    monkeypatch.setattr(refusals, "MAX_VARIABLES_BYTES", MAX_PAYLOAD_BYTES)  # 10 MiB take many states
    ended = machines.ended({"A": one, "B": {"Type": "Pass", "Assign": {"b.$": "$"}, "End": True}}, half)
    assert "262144 bytes for those of an execution" in ended["cause"]


def test_an_input_beyond_256_kib_starts_nothing(machines: Machines) -> None:
    arn = machines.make({"StartAt": "A", "States": {"A": END}})
    largest = json.dumps("ä" * (MAX_PAYLOAD_BYTES // 2 - 1), ensure_ascii=False)
    assert machines.client.start_execution(stateMachineArn=arn, name="largest", input=largest)
    for text in (f"{largest} ", json.dumps("x" * (MAX_PAYLOAD_BYTES - 1))):
        with pytest.raises(ClientError, match=r"ValidationException.*length less than or equal to 262144"):
            machines.client.start_execution(stateMachineArn=arn, name="large", input=text)


# --- Names and definitions.


@pytest.mark.parametrize("name", ["a b", "a/b", "a:b", "a<b", "a\nb", "a\u0085b", "a$b"])
def test_an_execution_with_a_bad_name_is_refused(machines: Machines, name: str) -> None:
    arn = machines.make({"StartAt": "A", "States": {"A": END}})
    with pytest.raises(ClientError, match="InvalidName"):
        machines.client.start_execution(stateMachineArn=arn, name=name)


def test_an_execution_whose_name_has_more_than_80_characters_is_refused(machines: Machines) -> None:
    arn = machines.make({"StartAt": "A", "States": {"A": END}})
    assert machines.client.start_execution(stateMachineArn=arn, name="a" * 80)
    with pytest.raises(ClientError, match=r"ValidationException.*length less than or equal to 80"):
        machines.client.start_execution(stateMachineArn=arn, name="a" * 81)


def machine(**states: State) -> dict[str, Any]:
    return {"StartAt": next(iter(states)), "States": states}


WAITING: State = {"Type": "Wait", "Seconds": 1, "End": True}
BRANCH = {"Type": "Parallel", "Branches": [machine(B={"Type": "Pass", "Next": "A"})], "End": True}
BAD = [
    ({"States": {"A": END}}, "StartAt"),
    ({"StartAt": "A"}, "States"),
    ({"StartAt": "B", "States": {"A": END}}, "Missing 'Next' target: B at /StartAt"),
    (machine(A={"Type": "Pass", "Next": "B"}), "Missing 'Next' target: B at /States/A/Next"),
    (machine(A={"Type": "Choice", "Choices": [{"Variable": "$.a", "IsNull": True, "Next": "B"}]}), "target: B"),
    (machine(A={"Type": "Choice", "Choices": [], "Default": "B"}), ""),
    (machine(**choosing({"Variable": "$.a", "IsNull": True}, Default="B")), "target: B at /States/Choose/Default"),
    (machine(A=calling("f", {}, Catch=[{"ErrorEquals": ALL, "Next": "B"}])), "B at /States/A/Catch/0/Next"),
    (machine(A=BRANCH), "Missing 'Next' target: A at /States/A/Branches/0/States/B/Next"),
    (machine(A={"Type": "Unknown", "End": True}), ""),
    (machine(A={"Type": "Pass"}), ""),
    (machine(A=calling("f", {}, Retry=[{"ErrorEquals": [*ALL, "Other"]}])), "States.ALL"),
    (machine(A=calling("f", {}, Retry=[{"ErrorEquals": ALL}, {"ErrorEquals": ["Other"]}])), "States.ALL"),
    (machine(**{"A" * 81: END}), "80"),
    ("no JSON", ""),
]


@pytest.mark.parametrize(("definition", "told"), BAD, ids=range(len(BAD)))
def test_a_definition_that_cannot_be_executed_is_refused(machines: Machines, definition: Any, told: str) -> None:
    with pytest.raises(ClientError) as refused:
        machines.make(definition)
    assert refused.value.response["Error"]["Code"] == "InvalidDefinition"
    assert told in refused.value.response["Error"]["Message"]
    arn = machines.make(machine(A=END))
    with pytest.raises(ClientError, match="InvalidDefinition"):
        machines.client.update_state_machine(
            stateMachineArn=arn, definition=definition if isinstance(definition, str) else json.dumps(definition)
        )


# --- Histories and lists.


def test_a_history_ends_with_its_event_25000(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MAX_EVENTS", 50)  # 25,000 take minutes
    ended = machines.ended({"Loop": {"Type": "Pass", "Next": "Loop"}})
    events = machines.events(ended)
    assert (ended["status"], ended["error"]) == ("FAILED", "States.Runtime")
    assert ended["cause"] == "The execution reached the maximum number of history events (50)."
    assert (events[-1]["id"], events[-1]["type"], events[-2]["type"]) == (50, "ExecutionFailed", "PassStateExited")


def test_a_history_that_fills_within_a_task_ends_as_well(
    machines: Machines, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    catch = [{"ErrorEquals": ALL, "Next": "Call"}]
    for most in (6, 7, 8):
        monkeypatch.setattr(refusals, "MAX_EVENTS", most)
        ended = machines.ended({"Call": calling(function, {"do": "raise"}, Catch=catch)})
        assert (ended["status"], ended["error"], len(machines.events(ended))) == ("FAILED", "States.Runtime", most)


def test_the_last_event_may_be_the_success(machines: Machines, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refusals, "MAX_EVENTS", 4)
    ended = machines.ended({"A": {"Type": "Pass", "End": True}})
    assert (ended["status"], len(machines.events(ended))) == ("SUCCEEDED", 4)


def test_executions_are_listed_in_pages_newest_first(machines: Machines) -> None:
    arn = machines.make(machine(A=END))
    for number in range(5):
        machines.client.start_execution(stateMachineArn=arn, name=f"n{number}")
    first = machines.client.list_executions(stateMachineArn=arn, maxResults=2)
    assert len(first["executions"]) == 2
    pages = machines.client.get_paginator("list_executions").paginate(
        stateMachineArn=arn, PaginationConfig={"PageSize": 2}
    )
    names = [each["name"] for page in pages for each in page["executions"]]
    assert names == ["n4", "n3", "n2", "n1", "n0"]
    with pytest.raises(ClientError, match="InvalidToken"):
        machines.client.list_executions(stateMachineArn=arn, nextToken="none")
    with pytest.raises(ClientError, match="ValidationException"):
        machines.client.list_executions(stateMachineArn=arn, maxResults=1001)


# --- Time.


@pytest.mark.parametrize("caught", ["States.Timeout", "States.ALL"])
def test_a_task_without_heartbeats_has_timed_out(machines: Machines, aws: AwsServer, caught: str) -> None:
    url = aws.client("sqs").create_queue(QueueName="tokens")["QueueUrl"]
    waiting = {
        "Type": "Task",
        "Resource": "arn:aws:states:::sqs:sendMessage.waitForTaskToken",
        "Parameters": {"QueueUrl": url, "MessageBody": {"token.$": "$$.Task.Token"}},
        "HeartbeatSeconds": 1,
        "TimeoutSeconds": 60,
        "Catch": [{"ErrorEquals": [caught], "Next": "Caught"}],
        "End": True,
    }
    ended = machines.ended({"Wait": waiting, "Caught": END})
    assert ended["status"] == "SUCCEEDED"
    assert json.loads(ended["output"])["Error"] == "States.Timeout"
    assert "TaskTimedOut" in {event["type"] for event in machines.events(ended)}


def test_the_time_of_entrance_is_that_of_the_event(machines: Machines) -> None:
    ended = machines.ended({"A": {"Type": "Pass", "Parameters": {"at.$": "$$.State.EnteredTime"}, "End": True}})
    (entered,) = [event for event in machines.events(ended) if event["type"] == "PassStateEntered"]
    expected = entered["timestamp"].strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
    assert json.loads(ended["output"]) == {"at": expected}


def test_the_result_of_a_child_has_its_times_in_milliseconds(machines: Machines) -> None:
    child = machines.make(machine(A={"Type": "Pass", "Parameters": {"twice.$": "$.n"}, "End": True}))
    parameters = {"StateMachineArn": child, "Name": "child", "Input": {"n": 1}}
    resource = "arn:aws:states:::states:startExecution.sync:2"
    state = {"Type": "Task", "Resource": resource, "Parameters": parameters, "Next": "B"}
    ended = machines.ended({"A": state, "B": {"Type": "Pass", "OutputPath": "$.StartDate", "End": True}})
    described = machines.client.describe_execution(executionArn=child.replace("stateMachine", "execution") + ":child")
    assert json.loads(ended["output"]) == round(described["startDate"].timestamp() * 1000)
    assert assert_run_replayed(machines.client, ended["executionArn"]) == ["run", "child"]
