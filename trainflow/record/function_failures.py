"""Failures of the workflow's own functions: which state, which function, how often and for how long it was tried."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainflow.record.history import SCHEDULED, Event, ExecutionHistory, events_by_visit
from trainflow.record.wording import count, duration
from trainflow.workflow.run_error import RunError

FAILED = {
    "TaskFailed": "taskFailedEventDetails",
    "TaskTimedOut": "taskTimedOutEventDetails",
    "TaskStartFailed": "taskStartFailedEventDetails",
    "LambdaFunctionFailed": "lambdaFunctionFailedEventDetails",
    "LambdaFunctionTimedOut": "lambdaFunctionTimedOutEventDetails",
}
"""Events that end an attempt of a task, with the field of their error."""

OF_FUNCTIONS = ("Runtime.", "Lambda.", "Sandbox.", "States.Timeout", "States.TaskFailed")
"""Beginnings of names of errors that are those of a function, and not of the training."""


@dataclass(frozen=True, kw_only=True)
class FunctionFailure:
    """A state whose function failed in every try."""

    state: str
    function: str
    error: str
    tries: int
    began_at: datetime
    ended_at: datetime

    def __str__(self) -> str:
        tries = count(self.tries, "time") if self.tries > 1 else "once"
        took = f" in {duration((self.ended_at - self.began_at).total_seconds())}" if self.tries > 1 else ""
        return (
            f"State {self.state}: the function {self.function} failed {tries}{took}. Its log is the log group of this "
            f"function, and in the twin logs/twin/lambda/{self.function}.log in the run's folder."
        )


def with_function(error: RunError | None, histories: Iterable[ExecutionHistory]) -> RunError | None:
    """The error of a run, with the state and the function if a function caused it.

    Args:
        error: The error.
        histories: The run's execution and its watch windows, in their order.
    """
    if error is None or not error.name.startswith(OF_FUNCTIONS):
        return error
    failures = [each for history in histories for each in function_failures(history) if each.error == error.name]
    if not failures or str(failures[-1]) in error.message:
        return error
    return replace(error, message=f"{failures[-1]} {error.message}".rstrip())


def function_failures(history: ExecutionHistory) -> Iterator[FunctionFailure]:
    """The visits whose last try failed, in the order of their ends."""
    tries: dict[int, list[datetime]] = {}
    functions: dict[int, str] = {}
    names: dict[int, str] = {}
    found: dict[int, FunctionFailure] = {}
    for event, visit in events_by_visit(history.events):
        if event["type"].endswith("StateEntered"):
            names[visit] = event["stateEnteredEventDetails"]["name"]
        elif event["type"] in SCHEDULED:
            tries.setdefault(visit, []).append(event["timestamp"])
            functions[visit] = _function(event) or functions.get(visit, "")
            found.pop(visit, None)
        elif event["type"] in FAILED and functions.get(visit) and visit in names:
            found[visit] = FunctionFailure(
                state=names[visit],
                function=functions[visit],
                error=str(event.get(FAILED[event["type"]], {}).get("error", "")),
                tries=len(tries[visit]),
                began_at=tries[visit][0],
                ended_at=event["timestamp"],
            )
    yield from sorted(found.values(), key=lambda failure: failure.ended_at)


def _function(event: Event) -> str | None:
    """Name of the function that a try calls; None for other tasks."""
    details: Mapping[str, Any] = event.get("taskScheduledEventDetails") or {}
    try:
        parameters = json.loads(details.get("parameters") or "{}")
    except ValueError:
        return None
    named = parameters.get("FunctionName") if isinstance(parameters, dict) else None
    named = named or (event.get("lambdaFunctionScheduledEventDetails") or {}).get("resource")
    if not isinstance(named, str):
        return None
    return named.partition(":function:")[2].partition(":")[0] or named
