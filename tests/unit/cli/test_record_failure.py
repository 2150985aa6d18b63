from __future__ import annotations

import json

import pytest
from recorded_runs import recorded

from tests.wording import wording
from trainflow.failures.error_table import error_table
from trainflow.record.failure import explained, run_error, what_to_do


def test_the_error_of_a_failed_run_has_the_lambdas_message_and_its_classs_advice() -> None:
    error = run_error(recorded("worker_failed").history)

    assert error is not None
    assert error.name == "WorkerFailed"
    assert error.message == (
        wording(
            "record_failure.the_error_of_a_failed_run_has_the_lambdas_message_and_its_classs_advice",
            "'demo-9b0e77d2c41a-training-1-1-q9d4w'",
            "'node-1'",
            "137",
            "61",
        )
    )
    assert error.what_to_do == error_table()["WorkerFailed"].what_to_do


@pytest.mark.parametrize("name", ["succeeded", "aborted"])
def test_a_run_that_succeeded_or_was_stopped_has_no_error(name: str) -> None:
    assert run_error(recorded(name).history) is None


def test_a_plain_cause_is_the_message() -> None:
    assert explained("States.Timeout", "The state took too long.").message == "The state took too long."


def test_the_error_of_a_child_execution_is_unwrapped() -> None:
    cause = json.dumps({"errorMessage": "No step for 5 minutes.", "errorType": "JobStalled"})
    child = json.dumps({"ExecutionArn": "arn", "Status": "FAILED", "Error": "JobStalled", "Cause": cause})

    error = explained("States.TaskFailed", child)

    assert (error.name, error.message) == ("JobStalled", "No step for 5 minutes.")
    assert error.what_to_do == error_table()["JobStalled"].what_to_do


def test_an_error_without_a_message_still_says_something() -> None:
    assert explained("JobNotFound", "").message == wording(
        "record_failure.an_error_without_a_message_still_says_something", "cluster", "watched"
    )
    assert explained("Odd", "{}").message == "The run ended with Odd and no message."


@pytest.mark.parametrize(
    "name",
    [
        *error_table(),
        "States.Timeout",
        "States.Odd",
        "Lambda.Unknown",
        "Sandbox.Timedout",
        "Runtime.ExitError",
        "KeyError",
    ],
)
def test_every_error_has_advice_in_a_full_sentence(name: str) -> None:
    assert what_to_do(name).endswith(".")
