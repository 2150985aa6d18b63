"""A run that a function of the workflow ended names the state, the function, and how often it was tried."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from trainflow.record.failure import explained
from trainflow.record.function_failures import with_function
from trainflow.record.history import ExecutionHistory
from trainflow.record.run_states import state_of_history

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
ARN = "arn:aws:lambda:us-west-2:123456789012:function:trainflow-SubmitJob"


def history(*visits: tuple[str, int, str | None], parameters: Any = None, ends: bool = True) -> ExecutionHistory:
    """An execution of states, each with a number of tries and the error of the last one."""
    events: list[dict[str, Any]] = []

    def add(kind: str, seconds: float = 0, **details: Any) -> None:
        at = (events[-1]["timestamp"] if events else NOW) + timedelta(seconds=seconds)
        number = len(events) + 1
        events.append({"id": number, "previousEventId": number - 1, "timestamp": at, "type": kind, **details})

    add("ExecutionStarted", executionStartedEventDetails={"input": "{}"})
    given = json.dumps(parameters or {"FunctionName": ARN})
    for state, tries, error in visits:
        add("TaskStateEntered", stateEnteredEventDetails={"name": state})
        for number in range(tries):
            add("TaskScheduled", 40 if number else 0, taskScheduledEventDetails={"parameters": given})
            if number < tries - 1 or error:
                add("TaskFailed", 8, taskFailedEventDetails={"error": error or "Runtime.ExitError", "cause": "{}"})
            else:
                add("TaskSucceeded", 8, taskSucceededEventDetails={"output": "{}"})
        add("TaskStateExited", stateExitedEventDetails={"name": state})
    name = visits[-1][2]
    if ends:
        add("ExecutionFailed", executionFailedEventDetails={"error": name, "cause": "RequestId: 85ec"})
    return ExecutionHistory(arn="arn:aws:states:us-west-2:1:execution:trainflow-training:a-1", events=tuple(events))


@pytest.mark.parametrize("error", ["Runtime.ExitError", "Lambda.Unknown", "Sandbox.Timedout", "States.Timeout"])
@pytest.mark.parametrize(("tries", "words"), [(1, "once."), (2, "2 times in 56 s."), (31, "31 times in 24 min 08 s.")])
def test_the_error_names_state_function_tries_duration_and_log(error: str, tries: int, words: str) -> None:
    state = state_of_history("a-1", history(("Preflight", 1, None), ("SubmitTraining", tries, error)), (), now=NOW)
    assert state.error is not None
    assert state.error.message.startswith(f"State SubmitTraining: the function trainflow-SubmitJob failed {words} ")
    assert "logs/twin/lambda/trainflow-SubmitJob.log" in state.error.message
    assert state.error.message.endswith("RequestId: 85ec")


def test_the_failure_that_ended_the_run_counts_and_not_one_that_was_survived() -> None:
    found = history(("StageData", 3, None), ("TearDown", 1, "Runtime.ExitError"))
    error = state_of_history("a-1", found, (), now=NOW).error
    assert error is not None and error.message.startswith("State TearDown: ")


def test_a_function_of_a_watch_window_is_named() -> None:
    window = history(("PollJob", 2, "Runtime.ExitError"))
    error = with_function(explained("Runtime.ExitError", "gone"), [history(("WatchTraining", 1, "X")), window])
    assert error is not None and error.message.startswith("State PollJob: the function trainflow-SubmitJob failed 2 ")


def test_the_error_of_a_training_is_as_it_was() -> None:
    error = explained("ScriptFailed", "It failed.")
    assert with_function(error, [history(("WatchTraining", 1, "ScriptFailed"))]) == error
    assert with_function(None, []) is None


@pytest.mark.parametrize("parameters", [{"Other": 1}, [1], "no object"])
def test_a_task_that_calls_no_function_is_not_named(parameters: Any) -> None:
    found = history(("WatchTraining", 1, "Runtime.ExitError"), parameters=parameters)
    error = explained("Runtime.ExitError", "gone")
    assert with_function(error, [found]) == error


def test_the_sentence_is_added_once() -> None:
    found = history(("PollJob", 2, "Runtime.ExitError"))
    once = with_function(explained("Runtime.ExitError", "gone"), [found])
    assert with_function(once, [found]) == once
