"""Reads an execution's history: states visited, attempts, outputs, child executions, and the end.

Works on events as `GetExecutionHistory` returns them through boto3 (time stamps are datetimes). Both the optimised
integrations (`TaskScheduled` …) and the plain Lambda resource (`LambdaFunctionScheduled` …) are read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from trainflow.observed.visit import Visit
from trainflow.workflow.run_record import RunStatus

Event = Mapping[str, Any]
"""One entry of `GetExecutionHistory`'s `events`."""

SCHEDULED = frozenset({"TaskScheduled", "LambdaFunctionScheduled", "ActivityScheduled"})
"""Events that begin an attempt of a state's task."""

SUCCEEDED = {
    "TaskSucceeded": "taskSucceededEventDetails",
    "LambdaFunctionSucceeded": "lambdaFunctionSucceededEventDetails",
}
"""Event types that carry a task's output, and where."""

ENDINGS = {
    "ExecutionSucceeded": RunStatus.SUCCEEDED,
    "ExecutionFailed": RunStatus.FAILED,
    "ExecutionAborted": RunStatus.ABORTED,
    "ExecutionTimedOut": RunStatus.TIMED_OUT,
}


@dataclass(frozen=True, kw_only=True)
class ExecutionHistory:
    """The events of one execution that are known so far, in the order of their ids."""

    arn: str
    events: tuple[Event, ...]

    @property
    def name(self) -> str:
        """Name of the execution."""
        return self.arn.rsplit(":", 1)[-1]

    @property
    def state_machine(self) -> str:
        """Name of its state machine (an execution's ARN ends in `:<state machine>:<name>`)."""
        return self.arn.rsplit(":", 2)[-2]

    @property
    def num_events(self) -> int:
        """Events so far; their ids count from 1 without gaps."""
        return int(self.events[-1]["id"]) if self.events else 0

    @property
    def started_at(self) -> datetime | None:
        """Start of the execution; None while no event is known."""
        return self.events[0]["timestamp"] if self.events else None

    @property
    def status(self) -> RunStatus:
        """Status at the end, or RUNNING."""
        return ENDINGS.get(self.events[-1]["type"], RunStatus.RUNNING) if self.events else RunStatus.RUNNING

    @property
    def ended_at(self) -> datetime | None:
        """Time of the end; None while it runs."""
        return None if self.status is RunStatus.RUNNING else self.events[-1]["timestamp"]

    def input(self) -> Any:
        """Input of the execution, decoded; None if it is not known."""
        for event in self.events[:1]:
            return _decoded(event.get("executionStartedEventDetails", {}).get("input"))
        return None


def arn_of_execution(state_machine_arn: str, name: str) -> str:
    """ARN of an execution, which need not exist."""
    return f"{state_machine_arn.replace(':stateMachine:', ':execution:', 1)}:{name}"


def visits(history: ExecutionHistory) -> list[Visit]:
    """Every state visit of one execution, in the order of entering.

    A visit without an exit is the present state of the execution, or that of its early end. A final Succeed or Fail
    state ends with the execution. States of Parallel branches and Map iterations are distinguished by
    `previousEventId`.
    """
    found: dict[int, Visit] = {}
    scheduled: dict[int, int] = {}
    for event, visit_id in events_by_visit(history.events):
        if event["type"].endswith("StateEntered"):
            found[visit_id] = Visit(
                name=event["stateEnteredEventDetails"]["name"],
                kind=event["type"].removesuffix("StateEntered"),
                entered_at=event["timestamp"],
                execution=history.name,
            )
        elif visit_id in found and event["type"] in SCHEDULED:
            scheduled[visit_id] = scheduled.get(visit_id, 0) + 1
            found[visit_id] = replace(found[visit_id], attempts=scheduled[visit_id])
        elif visit_id in found and event["type"].endswith("StateExited"):
            found[visit_id] = replace(found[visit_id], exited_at=event["timestamp"])
    return [_ended_with(visit, history) for visit in found.values()]


def all_visits(histories: Iterable[ExecutionHistory]) -> list[Visit]:
    """State visits of several executions, in the order of entering."""
    return sorted((visit for one in histories for visit in visits(one)), key=lambda visit: visit.entered_at)


def _ended_with(visit: Visit, history: ExecutionHistory) -> Visit:
    if visit.kind in ("Fail", "Succeed") and visit.exited_at is None:
        return replace(visit, exited_at=history.ended_at)
    return visit


def events_by_visit(events: Sequence[Event]) -> Iterator[tuple[Event, int]]:
    """Each event with the id of the StateEntered event that it belongs to (0 before the first state)."""
    visit_of: dict[int, int] = {}
    open_visits: dict[int, str] = {}
    for event in events:
        visit_id = visit_of.get(event.get("previousEventId", 0), 0)
        if event["type"].endswith("StateEntered"):
            visit_id = event["id"]
            open_visits[visit_id] = event["stateEnteredEventDetails"]["name"]
        elif event["type"].endswith("StateExited"):
            visit_id = _closed_by(event, visit_id, open_visits)
            open_visits.pop(visit_id, None)
        visit_of[event["id"]] = visit_id
        yield event, visit_id


def _closed_by(event: Event, visit_id: int, open_visits: Mapping[int, str]) -> int:
    """The visit that an exit closes: the event's own chain, or the newest open one of that name after a Parallel."""
    name = event["stateExitedEventDetails"]["name"]
    if open_visits.get(visit_id) == name:
        return visit_id
    return max((candidate for candidate, other in open_visits.items() if other == name), default=visit_id)


@dataclass(frozen=True, kw_only=True)
class TaskOutput:
    """Output of a state's task that succeeded."""

    state: str
    at: datetime
    output: Any
    """Decoded, and a Lambda's answer without its `Payload` wrapping; None if it is not in the history."""

    @property
    def fields(self) -> Mapping[str, Any]:
        """The output where it is an object; empty otherwise."""
        return self.output if isinstance(self.output, Mapping) else {}


def task_outputs(history: ExecutionHistory) -> Iterator[TaskOutput]:
    """Every success of a task, in the order of the events."""
    name_of: dict[int, str] = {}
    for event, visit_id in events_by_visit(history.events):
        if visit_id == event["id"]:
            name_of[visit_id] = event["stateEnteredEventDetails"]["name"]
        elif event["type"] in SUCCEEDED and visit_id in name_of:
            output = _decoded(event.get(SUCCEEDED[event["type"]], {}).get("output"))
            answer = output["Payload"] if isinstance(output, dict) and "Payload" in output else output
            yield TaskOutput(state=name_of[visit_id], at=event["timestamp"], output=answer)


def task_output(history: ExecutionHistory, state: str) -> Any:
    """Output of the last success of a state's task, as in `TaskOutput`.

    Returns:
        None if the state's task has not succeeded, or if its output is not in the history.
    """
    outputs = [found.output for found in task_outputs(history) if found.state == state]
    return outputs[-1] if outputs else None


def publication(history: ExecutionHistory) -> Mapping[str, Any]:
    """Output of publishing the artifacts, also for a run that reached a limit; empty if it did not end."""
    found = task_output(history, "PublishArtifacts") or task_output(history, "PublishAtLimit")
    return found if isinstance(found, dict) else {}


def trained_steps(history: ExecutionHistory) -> int | None:
    """The number of steps that the program has counted: read before its pods were deleted, or when it was published."""
    answers = [task_output(history, "TearDown"), publication(history)]
    told = [answer.get("trained_steps") for answer in answers if isinstance(answer, dict)]
    return next((steps for steps in told if isinstance(steps, int)), None)


def child_arns(history: ExecutionHistory) -> list[str]:
    """ARNs of the executions that this one started (`states:startExecution`), in their order."""
    found: dict[str, None] = {}
    for event in history.events:
        details = event.get("taskSubmittedEventDetails") or event.get("taskSucceededEventDetails") or {}
        if details.get("resourceType") == "states":
            answer = _decoded(details.get("output"))
            arn = (answer.get("ExecutionArn") or answer.get("executionArn")) if isinstance(answer, dict) else None
            if arn:
                found[arn] = None
    return list(found)


def current_state(found: Sequence[Visit]) -> Visit | None:
    """The state that was entered last and not left; None between states and after the end."""
    still_open = [visit for visit in found if visit.exited_at is None]
    return max(still_open, key=lambda visit: visit.entered_at, default=None)


def _decoded(text: Any) -> Any:
    if not isinstance(text, str):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None
