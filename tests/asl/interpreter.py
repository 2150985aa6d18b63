"""Executes a definition. What its tasks answer comes from outside; what it makes of that is its history."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from tests.asl.choices import holds
from tests.asl.data import (
    MAX_PAYLOAD_BYTES,
    RUNTIME,
    Missing,
    Scope,
    StatesError,
    Unsupported,
    checked_size,
    filled,
    text_of,
    value_at,
    with_result,
)

MAX_EVENTS = 25_000
"""Event of this number ends the execution: as it would have succeeded, or else it fails (Step Functions developer
guide, 'Avoid reaching the history quota')."""

Event = dict[str, Any]
"""Its `type`, and what it says as JSON values."""

ALWAYS = frozenset({"Type", "Comment"})
FLOW = frozenset({"InputPath", "OutputPath"})
AFTER = frozenset({"Next", "End"})
FIELDS: Mapping[str, frozenset[str]] = {
    "Task": frozenset(
        {"Resource", "Parameters", "ResultSelector", "ResultPath", "TimeoutSeconds", "Retry", "Catch", "Assign"}
    )
    | FLOW
    | AFTER,
    "Pass": frozenset({"Parameters", "Result", "ResultPath", "Assign"}) | FLOW | AFTER,
    "Wait": frozenset({"Seconds", "SecondsPath", "Assign"}) | FLOW | AFTER,
    "Choice": frozenset({"Choices", "Default"}) | FLOW,
    "Succeed": FLOW,
    "Fail": frozenset({"Error", "Cause", "ErrorPath", "CausePath"}),
}
"""Fields of each type besides those of all types."""
RESOURCES = {
    "arn:aws:states:::lambda:invoke": ("lambda", "invoke"),
    "arn:aws:states:::states:startExecution.sync:2": ("states", "startExecution.sync:2"),
}
"""Type and name of a resource, as events tell them."""
RETRIER = frozenset(
    {"ErrorEquals", "IntervalSeconds", "BackoffRate", "MaxDelaySeconds", "MaxAttempts", "JitterStrategy", "Comment"}
)
CATCHER = frozenset({"ErrorEquals", "Next", "ResultPath", "Assign", "Comment"})
TOP = frozenset({"Comment", "StartAt", "States"})


class InvalidDefinition(Exception):
    """A definition that CreateStateMachine refuses."""


class HistoryFull(Exception):
    """There is room for one event only, the one that ends the execution."""


class World(Protocol):
    """What an execution meets."""

    def entered_at(self, state: str) -> str:
        """The time at which a state is entered, as `$$.State.EnteredTime` says it."""

    def answer(self, resource: str, parameters: Any) -> Answer:
        """What comes of a task."""

    def passes(self, state: str) -> None:
        """Wait.

        Raises:
            Stopped: If the execution is ended from outside meanwhile.
        """


class Stopped(Exception):
    """The execution was ended from outside."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What comes of a task. Without result and failure, the execution is ended from outside meanwhile."""

    submitted: Any = None
    """What StartExecution answers, for a child execution that is awaited."""
    result: Any = None
    failure: tuple[str, str] | None = None
    """Name and cause of the task's error."""
    timed_out: bool = False
    """Whether the failure is the end of its time."""


def check(definition: Mapping[str, Any]) -> None:
    """Refuse what CreateStateMachine refuses of a definition, and what this interpreter does not know.

    Raises:
        InvalidDefinition: The first of these faults.
        Unsupported: If a field, state or function is none that our texts use.
    """
    if unknown := definition.keys() - TOP:
        raise Unsupported(f"The definition has the field {min(unknown)}.")
    states = definition.get("States")
    if not isinstance(states, dict) or not states:
        raise InvalidDefinition("MISSING_STATES: The definition has no States.")
    if definition.get("StartAt") not in states:
        raise InvalidDefinition(f"MISSING_TRANSITION_TARGET: StartAt names no state: {definition.get('StartAt')}.")
    for name, state in states.items():
        _check_state(name, state)
        for target in targets(state):
            if target not in states:
                raise InvalidDefinition(f"MISSING_TRANSITION_TARGET: State {name} leads to {target}.")


def _check_state(name: str, state: Mapping[str, Any]) -> None:
    kind = str(state.get("Type"))
    if kind not in FIELDS:
        raise Unsupported(f"State {name} is of the type {kind}.")
    if unknown := state.keys() - FIELDS[kind] - ALWAYS:
        raise Unsupported(f"State {name} has the field {min(unknown)}.")
    if "Next" in FIELDS[kind] and ("Next" in state) == (state.get("End") is True):
        raise InvalidDefinition(f"SCHEMA_VALIDATION_FAILED: State {name} has either Next or End.")
    if kind == "Task" and state.get("Resource") not in RESOURCES:
        raise Unsupported(f"State {name} has the resource {state.get('Resource')}.")
    if "Assign" in state and "ResultSelector" in state:
        raise Unsupported(f"State {name} has both Assign and ResultSelector.")
    for rules, known in (("Retry", RETRIER), ("Catch", CATCHER)):
        for position, rule in enumerate(state.get(rules, ()), start=1):
            if unknown := rule.keys() - known:
                raise Unsupported(f"State {name} has the field {min(unknown)} in {rules}.")
            last_and_alone = position == len(state[rules]) and len(rule["ErrorEquals"]) == 1
            if "States.ALL" in rule["ErrorEquals"] and not last_and_alone:
                raise InvalidDefinition(f"SCHEMA_VALIDATION_FAILED: State {name}: States.ALL is alone, and last.")


def targets(state: Mapping[str, Any]) -> list[str]:
    """Every state to which a state can lead."""
    rules = (*state.get("Choices", ()), *state.get("Catch", ()))
    return [*(state[key] for key in ("Next", "Default") if key in state), *(rule["Next"] for rule in rules)]


def matches(names: Sequence[str], error: StatesError) -> bool:
    """Whether a retrier or catcher of these names is for an error.

    States.Runtime always ends the execution. States.TaskFailed stands for every error of a task but States.Timeout. No
    wildcard stands for a States.DataLimitExceeded of parameters or of a state's output (Step Functions developer guide,
    'Error names'); for that of a task's result, both do (recorded on AWS, docs/assumptions.md).
    """
    if error.name == RUNTIME:
        return False
    if error.name in names:
        return True
    if error.is_terminal:
        return False
    return "States.ALL" in names or ("States.TaskFailed" in names and error.name != "States.Timeout")


# Decision 50: a second interpreter, written from the specification, finds the faults of moto's.
class Interpreter:
    """One execution of a definition."""

    def __init__(self, definition: Mapping[str, Any], *, execution: Mapping[str, Any], world: World) -> None:
        """
        Args:
            definition: What to execute.
            execution: `$$.Execution`.
            world: Where times and the results of tasks come from.
        """
        check(definition)
        self._states, self._start = definition["States"], definition["StartAt"]
        self._context: dict[str, Any] = {"Execution": dict(execution)}
        self._world = world
        self._variables: dict[str, Any] = {}
        self.history: list[Event] = []

    def run(self, document: Any) -> None:
        """Execute, from an input to the event of the end. An execution that is ended from outside has no such event.

        Raises:
            ValueError: If StartExecution refuses the input for its size.
        """
        if len(text_of(document).encode()) > MAX_PAYLOAD_BYTES:
            raise ValueError(f"The input is larger than {MAX_PAYLOAD_BYTES} bytes.")
        try:
            self._add("ExecutionStarted", input=document)
            following: str | None = self._start
            while following is not None:
                name, entered = following, len(self.history) + 1
                try:
                    following, document = self._visit(name, document)
                except StatesError as error:
                    self._end("ExecutionFailed", error=error.name, cause=_told(error, name, entered))
                    return
            self._end("ExecutionSucceeded", output=document)
        except HistoryFull:
            cause = f"The execution reached the maximum number of history events ({MAX_EVENTS})."
            self._end("ExecutionFailed", error=RUNTIME, cause=cause)
        except Stopped:
            return

    def _add(self, event_type: str, **details: Any) -> None:
        if len(self.history) >= MAX_EVENTS - 1:
            raise HistoryFull
        self._end(event_type, **details)

    def _end(self, event_type: str, **details: Any) -> None:
        self.history.append({"type": event_type, **json.loads(json.dumps(details))})

    def _visit(self, name: str, document: Any) -> tuple[str | None, Any]:
        """Pass through a state; returns the next one, and its input."""
        state = self._states[name]
        kind: str = state["Type"]
        self._context["State"] = {"Name": name, "EnteredTime": self._world.entered_at(name)}
        self._add(f"{kind}StateEntered", name=name, input=document)
        if kind == "Fail":
            raise self._failure(state, document)
        effective = self._at_path(state.get("InputPath", "$"), document)
        assigned: dict[str, Any] = {}
        following = state.get("Next")
        if kind == "Choice":
            following, output = self._decided(state, effective), effective
        elif kind == "Wait":
            self._wait(name, state, effective)
            output, assigned = effective, self._assigned(state, effective)
        elif kind == "Pass":
            output, assigned = self._passed(state, document, effective)
        elif kind == "Task":
            output, assigned, caught = self._performed(name, state, document, effective)
            if caught is not None:
                self._variables |= assigned
                self._leave(kind, name, output, assigned)
                return caught, output
        else:
            output = effective
        output = checked_size(self._at_path(state.get("OutputPath", "$"), output), name)
        self._variables |= assigned
        self._leave(kind, name, output, assigned)
        return following, output

    def _leave(self, kind: str, name: str, output: Any, assigned: Mapping[str, Any]) -> None:
        self._add(f"{kind}StateExited", name=name, output=output, assigned=dict(assigned))

    def _scope(self, document: Any) -> Scope:
        return Scope(document, self._context, self._variables)

    def _at_path(self, path: str | None, document: Any) -> Any:
        """What InputPath or OutputPath selects."""
        if path is None:
            return {}
        try:
            return value_at(path, self._scope(document))
        except Missing:
            raise StatesError(RUNTIME, f"Invalid path '{path}': No results for path.") from None

    def _assigned(self, rule: Mapping[str, Any], document: Any) -> dict[str, Any]:
        """Values of a state's or a catcher's Assign. All of them are computed before any is assigned."""
        made: dict[str, Any] = filled(rule.get("Assign", {}), self._scope(document))
        return made

    def _decided(self, state: Mapping[str, Any], document: Any) -> str:
        for rule in state["Choices"]:
            if holds(rule, self._scope(document)):
                return str(rule["Next"])
        if "Default" in state:
            return str(state["Default"])
        # The guide names States.NoChoiceMatched; executions on AWS end with this.
        raise StatesError(RUNTIME, "Failed to transition out of the state. The state does not point to a next state.")

    def _wait(self, name: str, state: Mapping[str, Any], document: Any) -> None:
        seconds = state["Seconds"] if "Seconds" in state else self._at_path(state["SecondsPath"], document)
        if not isinstance(seconds, int) or isinstance(seconds, bool) or seconds < 0:
            raise StatesError(RUNTIME, f"The seconds to wait are no whole number from 0: {seconds}.")
        self._world.passes(name)

    def _passed(self, state: Mapping[str, Any], document: Any, effective: Any) -> tuple[Any, dict[str, Any]]:
        result = filled(state["Parameters"], self._scope(effective)) if "Parameters" in state else effective
        result = state.get("Result", result)
        return with_result(document, result, state.get("ResultPath", "$")), self._assigned(state, result)

    def _failure(self, state: Mapping[str, Any], document: Any) -> StatesError:
        told = {}
        for key in ("Error", "Cause"):
            value = self._at_path(state[f"{key}Path"], document) if f"{key}Path" in state else state.get(key, "")
            if not isinstance(value, str):
                raise StatesError(RUNTIME, f"{key}Path leads to no string.")
            told[key] = value
        return Failed(told["Error"], told["Cause"])

    def _performed(
        self, name: str, state: Mapping[str, Any], document: Any, effective: Any
    ) -> tuple[Any, dict[str, Any], str | None]:
        """Call a task until it succeeds or its retries are used up.

        Returns:
            The output, what is assigned, and the next state if the failure was caught.
        """
        used: dict[int, int] = {}
        while True:
            try:
                result = self._called(name, state, effective)
                assigned = self._assigned(state, result)
                if "ResultSelector" in state:
                    result = filled(state["ResultSelector"], self._scope(result))
                return with_result(document, result, state.get("ResultPath", "$")), assigned, None
            except StatesError as error:
                if self._may_retry(state, error, used):
                    continue
                caught = next((each for each in state.get("Catch", ()) if matches(each["ErrorEquals"], error)), None)
                if caught is None:
                    raise
                told = {"Error": error.name, "Cause": error.cause}
                output = checked_size(with_result(document, told, caught.get("ResultPath", "$")), name)
                return output, self._assigned(caught, told), str(caught["Next"])

    @staticmethod
    def _may_retry(state: Mapping[str, Any], error: StatesError, used: dict[int, int]) -> bool:
        """Whether the first retrier for an error has a try left; counts it."""
        for number, retrier in enumerate(state.get("Retry", ())):
            if matches(retrier["ErrorEquals"], error):
                used[number] = used.get(number, 0) + 1
                return used[number] <= int(retrier.get("MaxAttempts", 3))
        return False

    def _called(self, name: str, state: Mapping[str, Any], effective: Any) -> Any:
        parameters = filled(state["Parameters"], self._scope(effective)) if "Parameters" in state else effective
        kind, resource = RESOURCES[state["Resource"]]
        checked_size(parameters, name)
        given = {"timeout": state["TimeoutSeconds"]} if "TimeoutSeconds" in state else {}
        self._add("TaskScheduled", resourceType=kind, resource=resource, parameters=parameters, **given)
        self._add("TaskStarted")
        answer = self._world.answer(resource, parameters)
        if answer.submitted is not None:
            self._add("TaskSubmitted", output=answer.submitted)
        try:
            if answer.failure is not None:
                raise StatesError(*answer.failure)
            checked_size(answer.result, kind, is_result=True)
        except StatesError as error:
            self._add("TaskTimedOut" if answer.timed_out else "TaskFailed", error=error.name, cause=error.cause)
            raise
        if answer.result is None:
            raise Stopped
        self._add("TaskSucceeded", output=answer.result)
        return answer.result


class Failed(StatesError):
    """The end that a Fail state gives."""


def _told(error: StatesError, state: str, entered: int) -> str:
    """The cause of the execution's failure. That of States.Runtime names the state and the event of its entrance."""
    if error.name != RUNTIME or isinstance(error, Failed):
        return error.cause
    return f"An error occurred while executing the state '{state}' (entered at the event id #{entered}). {error.cause}"
