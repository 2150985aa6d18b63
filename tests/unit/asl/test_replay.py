"""A recorded execution is executed again, and each difference is noticed."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.asl.data import Unsupported
from tests.asl.replay import Recorded, assert_replayed

AT = datetime(2026, 11, 23, 10, 0, 0, 123456, UTC)
DEFINITION = {
    "StartAt": "Call",
    "States": {
        "Call": {
            "Type": "Task",
            "Resource": "arn:aws:states:::lambda:invoke",
            "Parameters": {"n.$": "$.n", "at.$": "$$.State.EnteredTime", "name.$": "$$.Execution.Name"},
            "TimeoutSeconds": 9,
            "Assign": {"kept.$": "$.answer"},
            "Retry": [{"ErrorEquals": ["Passing"], "MaxAttempts": 1}],
            "ResultPath": None,
            "End": True,
        }
    },
}
PARAMETERS = {"n": 1, "at": "2026-11-23T10:00:00.123Z", "name": "run"}
ASKED = {"resourceType": "lambda", "resource": "invoke", "parameters": json.dumps(PARAMETERS), "timeoutInSeconds": 9}


def event(kind: str, **told: Any) -> dict[str, Any]:
    return {"id": 0, "timestamp": AT, "type": kind, "toldEventDetails": told}


def recorded() -> dict[str, Any]:
    """An execution whose first try failed."""
    document = '{"n": 1}'
    return {
        "definition": copy.deepcopy(DEFINITION),
        "description": {"executionArn": "arn:run", "name": "run", "input": document, "startDate": AT},
        "events": [
            event("ExecutionStarted", input=document),
            {**event("TaskStateEntered"), "stateEnteredEventDetails": {"name": "Call", "input": document}},
            event("TaskScheduled", **ASKED),
            event("TaskStarted"),
            event("TaskFailed", error="Passing"),
            event("TaskScheduled", **ASKED),
            event("TaskStarted"),
            event("TaskSucceeded", output='{"answer": 2}'),
            event("TaskStateExited", name="Call", output=document, assignedVariables={"kept": "2"}),
            event("ExecutionSucceeded", output=document),
        ],
    }


def execution(change: Callable[[dict[str, Any]], None] = lambda _: None) -> Recorded:
    made = recorded()
    del made["events"][1]["toldEventDetails"]
    change(made)
    return Recorded(**made)


def told(number: int, **fields: Any) -> Callable[[dict[str, Any]], None]:
    """Change what an event says."""
    return lambda made: made["events"][number - 1]["toldEventDetails"].update(fields)


def state(**fields: Any) -> Callable[[dict[str, Any]], None]:
    """Change the text."""
    return lambda made: made["definition"]["States"]["Call"].update(fields)


def test_what_comes_out_as_recorded_is_the_same() -> None:
    assert_replayed(execution())


def test_what_was_ended_from_outside_is_compared_as_far_as_it_went() -> None:
    for end in ("ExecutionAborted", "ExecutionTimedOut"):
        for events in range(3, 9):
            assert_replayed(execution(lambda made: made["events"].__setitem__(slice(events, None), [event(end)])))  # noqa: B023


DIFFERENT = {
    "another payload": told(3, parameters=json.dumps({**PARAMETERS, "n": 2})),
    "another time limit": told(3, timeoutInSeconds=8),
    "an output of another state": told(9, output="{}"),
    "another variable": told(9, assignedVariables={"kept": "3"}),
    "no variable": told(9, assignedVariables={}),
    "another end": told(10, output="{}"),
    "a try more": lambda made: made["events"].insert(5, event("TaskStarted")),
    "no event of the end": lambda made: made["events"].pop(),
    "a state less": state(End=None, Next="Other"),
    "no retry": state(Retry=[]),
    "another parameter": state(Parameters={"n.$": "$.n"}),
    "another assignment": state(Assign={"kept": 0}),
    "another way for the result": state(ResultPath="$"),
}


@pytest.mark.parametrize("change", DIFFERENT.values(), ids=DIFFERENT)
def test_a_difference_is_noticed(change: Callable[[dict[str, Any]], None]) -> None:
    def changed(made: dict[str, Any]) -> None:
        change(made)
        if "Next" in made["definition"]["States"]["Call"]:
            del made["definition"]["States"]["Call"]["End"]
            made["definition"]["States"]["Other"] = {"Type": "Succeed"}

    with pytest.raises(AssertionError):
        assert_replayed(execution(changed))


def test_a_redriven_execution_is_not_executed_again() -> None:
    with pytest.raises(Unsupported):
        assert_replayed(execution(lambda made: made["events"].append(event("ExecutionRedriven"))))
