"""Explains why a run failed: turns Step Functions' error name and cause into a sentence and the next thing to do."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from trainflow.errors import NEXT_STEP
from trainflow.failures.error_table import error_table
from trainflow.failures.judgement import from_text
from trainflow.record.history import Event, ExecutionHistory
from trainflow.workflow.run_record import RunError, RunStatus

WHAT_TO_DO = {
    "Aborted": "Continue it from its newest checkpoint, if it has one: trainflow resume RUN. Otherwise start it again.",
    "States.Timeout": (
        "Look in the report (`trainflow report RUN`) for the state that did not end, and at its function's log; then "
        "start again."
    ),
    "States.HeartbeatTimeout": "Look in the report for the state that went silent, and at its function's log.",
    "States.Permissions": "Give the state machine's role the permission that the message names.",
    "States.DataLimitExceeded": "Report this: a state's output grew beyond 256 KiB, which no run should cause.",
    "States.Runtime": "Report this with the run's history: the state machine could not process its own data.",
    "States.NoChoiceMatched": "Report this with the run's history: a choice had no branch for the data it met.",
    "States.ExceedToleratedFailureThreshold": "Read the failed items' errors in the execution's map run.",
    "Lambda.TooManyRequestsException": "Raise the account's Lambda concurrency quota, or start the run again later.",
}
"""Next step for each error that Step Functions and Lambda raise themselves."""

_CONTINUE = "Then `trainflow resume RUN` continues from the newest checkpoint, if the run has one."

_BY_PREFIX = {
    "States.": "Look in the report for the state that failed, and in the execution's history for its input.",
    "Lambda.": f"Read the log of the function; Lambda itself could not run it. {_CONTINUE}",
    "Sandbox.": f"The function ran out of time: read its log, or raise its time limit. {_CONTINUE}",
    "Runtime.": f"The function broke down: read its log, or raise its memory limit. {_CONTINUE}",
}

_DETAILS = {
    "ExecutionFailed": "executionFailedEventDetails",
    "ExecutionAborted": "executionAbortedEventDetails",
    "ExecutionTimedOut": "executionTimedOutEventDetails",
}


def run_error(history: ExecutionHistory) -> RunError | None:
    """The error of an ended execution; None while it runs, after success, and after a plain abort."""
    if not history.events:
        return None
    last: Event = history.events[-1]
    details = last.get(_DETAILS.get(last["type"], ""), None) or {}
    name, cause = details.get("error"), details.get("cause")
    if history.status is RunStatus.FAILED:
        return explained(name or "States.Runtime", cause or "")
    if history.status is RunStatus.TIMED_OUT:
        return explained(name or "States.Timeout", cause or "The execution ran longer than its time limit.")
    if history.status is RunStatus.ABORTED and (name or cause):
        return explained(name or "Aborted", cause or "")
    return None


def caught_error(error: Mapping[str, Any]) -> RunError:
    """Explain the error that a Catch received.

    Args:
        error: `Error` and `Cause` as Step Functions gives them.
    """
    return explained(str(error.get("Error") or "States.Runtime"), str(error.get("Cause") or ""))


def explained(name: str, cause: str) -> RunError:
    """Explain an error name and its cause.

    A cause may be plain text, Lambda's `{"errorMessage", "errorType"}`, or the description of a child execution that
    failed: then the child's own error is the one that matters.
    """
    said = _json_object(cause)
    child_error = said.get("Error") or said.get("error")
    if name == "States.TaskFailed" and child_error:
        return explained(str(child_error), str(said.get("Cause") or said.get("cause") or ""))
    if said.get("errorType") and name in ("States.TaskFailed", "States.ALL"):
        name = str(said["errorType"])
    text = str(said.get("errorMessage") or said.get("message") or ("" if said or cause.strip() == "{}" else cause))
    message, judgement = from_text(text.strip())
    judged: dict[str, Any] = asdict(judgement) if judgement is not None else {}
    return RunError(name=name, message=message or _summary(name), what_to_do=what_to_do(name), **judged)


def what_to_do(name: str) -> str:
    """The next step for an error: for our errors by their table, for Step Functions' own by the table above."""
    if (ours := error_table().get(name)) is not None:
        return ours.what_to_do
    by_prefix = (advice for prefix, advice in _BY_PREFIX.items() if name.startswith(prefix))
    return WHAT_TO_DO.get(name) or next(by_prefix, NEXT_STEP)


def _summary(name: str) -> str:
    """A sentence for an error that came without a message: its meaning, or its name."""
    ours = error_table().get(name)
    return ours.means if ours is not None else f"The run ended with {name} and no message."


def _json_object(text: str) -> dict[str, Any]:
    try:
        decoded = json.loads(text)
    except ValueError:
        return {}
    return decoded if isinstance(decoded, dict) else {}
