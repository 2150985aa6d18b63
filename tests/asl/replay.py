"""Executes again what was executed: the answers of tasks and the times of states are those of a recorded history, and
everything else has to come out as it was recorded."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tests.asl.data import Unsupported
from tests.asl.interpreter import Answer, Event, Interpreter, Stopped

FROM_OUTSIDE = ("ExecutionAborted", "ExecutionTimedOut")
"""Ends that come from outside of the execution."""
ANSWERS = ("TaskSubmitted", "TaskSucceeded", "TaskFailed", "TaskTimedOut")


@dataclass(frozen=True, kw_only=True)
class Recorded:
    """An execution, as DescribeExecution and GetExecutionHistory tell it."""

    definition: Mapping[str, Any]
    description: Mapping[str, Any]
    events: Sequence[Mapping[str, Any]]


class RecordedWorld:
    """Answers as a recorded execution was answered."""

    def __init__(self, events: Sequence[Mapping[str, Any]]) -> None:
        self._entered = iter([event for event in events if event["type"].endswith("StateEntered")])
        self._waited = iter([event for event in events if event["type"] == "WaitStateExited"])
        self._answers = iter([event for event in events if event["type"] in ANSWERS])

    def entered_at(self, state: str) -> str:
        """The time of the next entrance that was recorded."""
        event = next(self._entered, None)
        if event is None:
            raise Stopped
        found = event["stateEnteredEventDetails"]["name"]
        assert found == state, f"Event {event['id']}: {found} was entered, and {state} should have been."
        return moment(event["timestamp"])

    def answer(self, _resource: str, _parameters: Any) -> Answer:
        """The next answer that was recorded."""
        submitted = None
        for event in self._answers:
            told = as_interpreted(event)
            if event["type"] == "TaskSubmitted":
                submitted = told["output"]
            elif event["type"] == "TaskSucceeded":
                return Answer(submitted=submitted, result=told["output"])
            else:
                failure = told["error"], told["cause"]
                return Answer(submitted=submitted, failure=failure, timed_out=event["type"] == "TaskTimedOut")
        return Answer(submitted=submitted)

    def passes(self, _state: str) -> None:
        """Wait no longer than was recorded."""
        if next(self._waited, None) is None:
            raise Stopped


def moment(time: datetime) -> str:
    """A time as the context object says it."""
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def as_interpreted(event: Mapping[str, Any]) -> Event:
    """A recorded event as the interpreter writes it."""
    (told,) = [value for key, value in event.items() if key.endswith("EventDetails")] or [{}]
    made: Event = {"type": event["type"]}
    names = ("resourceType", "resource") if event["type"] == "TaskScheduled" else ("name",)
    made |= {key: told[key] for key in names if key in told}
    for key in ("input", "parameters", "output"):
        if key in told:
            made[key] = json.loads(told[key])
    if "timeoutInSeconds" in told:
        made["timeout"] = told["timeoutInSeconds"]
    if event["type"].endswith("StateExited"):
        made["assigned"] = {name: json.loads(text) for name, text in told.get("assignedVariables", {}).items()}
    if event["type"].endswith(("Failed", "TimedOut")):
        made |= {"error": told.get("error", ""), "cause": told.get("cause", "")}
    return made


def replayed(recorded: Recorded) -> list[Event]:
    """The history that the interpreter makes of the recorded answers."""
    described = recorded.description
    if any(event["type"] == "ExecutionRedriven" for event in recorded.events):
        raise Unsupported("A redriven execution is not executed again.")
    given = json.loads(described["input"])
    execution = {
        "Id": described["executionArn"],
        "Name": described["name"],
        "Input": given,
        "StartTime": moment(described["startDate"]),
    }
    interpreter = Interpreter(recorded.definition, execution=execution, world=RecordedWorld(recorded.events))
    interpreter.run(given)
    return interpreter.history


def assert_replayed(recorded: Recorded) -> None:
    """The interpreter takes the way of an execution, with the same data at every step."""
    found = [as_interpreted(event) for event in recorded.events]
    made = replayed(recorded)
    if found[-1]["type"] in FROM_OUTSIDE:
        found.pop()
        del made[len(found) :]
    for number, (was, would) in enumerate(zip(found, made, strict=False), start=1):
        assert was == would, f"{recorded.description['name']}, event {number}"
    assert [event["type"] for event in found] == [event["type"] for event in made]


def assert_run_replayed(stepfunctions: Any, arn: str) -> list[str]:
    """The interpreter takes the way of a run and of its child executions, each with the input that its parent gives it
    and with the output that its parent reads.

    Returns:
        Names of the executions.
    """
    parent = recording(stepfunctions, arn)
    assert_replayed(parent)
    names = [str(parent.description["name"])]
    scheduled: Mapping[str, Any] = {}
    child: Recorded | None = None
    for event in map(as_interpreted, parent.events):
        if event["type"] == "TaskScheduled":
            scheduled, child = event, None
        elif event["type"] == "TaskSubmitted":
            child = recording(stepfunctions, event["output"]["ExecutionArn"])
            assert_replayed(child)
            names.append(str(child.description["name"]))
            assert scheduled["parameters"]["Name"] == names[-1]
            assert scheduled["parameters"]["Input"] == json.loads(child.description["input"])
            # The parent names a version; DescribeExecution names the version in another field, which moto lacks.
            machine = ":".join(scheduled["parameters"]["StateMachineArn"].split(":")[:7])
            assert machine == child.description["stateMachineArn"]
        elif event["type"] == "TaskSucceeded" and child is not None:
            _assert_result_of(child, event["output"])
    return names


def _assert_result_of(child: Recorded, result: Mapping[str, Any]) -> None:
    """The result of `startExecution.sync:2`: the child's description in Pascal case, its input and output as JSON, its
    times in milliseconds (Step Functions developer guide, 'Start workflow executions from a task state')."""
    described = child.description
    assert result["Status"] == described["status"]
    assert result["Output"] == json.loads(described["output"])
    assert result["Input"] == json.loads(described["input"])
    for key in ("StartDate", "StopDate"):
        expected = round(described[key[0].lower() + key[1:]].timestamp() * 1000)
        assert result[key] == expected, f"{key}: {result[key]}"


def recording(stepfunctions: Any, arn: str) -> Recorded:
    """What Step Functions tells of an execution."""
    described = stepfunctions.describe_execution(executionArn=arn)
    machine = stepfunctions.describe_state_machine(stateMachineArn=described["stateMachineArn"])
    pages = stepfunctions.get_paginator("get_execution_history").paginate(executionArn=arn)
    events = [event for page in pages for event in page["events"]]
    return Recorded(definition=json.loads(machine["definition"]), description=described, events=events)
