"""Refusals of Step Functions that moto 5.2.5 lacks while it executes: paths that lead nowhere, payloads beyond 256 KiB,
histories beyond 25,000 events.

Where the developer guide and executions on AWS differ, this does as the executions (decision 101). All patches replace
private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from typing import Any

from local.aws.replacements import replace

MAX_PAYLOAD_BYTES = 262_144
"""Input or result of a task, state or execution, as UTF-8 (Step Functions developer guide, 'Quotas')."""

MAX_VARIABLES_BYTES = 10 * 1024 * 1024
"""All variables of an execution; those of one Assign may have as much as a payload (Step Functions developer guide,
'Passing data between states with variables')."""

MAX_EVENTS = 25_000
"""Events of a history. The last one is the execution's success, or else its failure (Step Functions developer guide,
'Avoid reaching the history quota')."""

RUNTIME = "States.Runtime"
DATA_LIMIT = "States.DataLimitExceeded"


def apply_all() -> None:
    """Apply every patch of this module."""
    _choices()
    _wildcards()
    _payloads()
    _variables()
    _full_histories()
    _entrances()


def state_failure(env: Any, error: str, cause: str) -> Exception:
    """Exception that ends a state; the interpreter puts the state's name before the cause of States.Runtime."""
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.custom_error_name import CustomErrorName
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import (
        FailureEvent,
        FailureEventException,
    )

    class Named(CustomErrorName):  # type: ignore[misc]
        is_terminal = error == DATA_LIMIT  # these are parameters and variables, not a task's result

        def __init__(self) -> None:
            self.error_name = error  # those of functions may not begin with "States."

    event = FailureEvent(
        env=env,
        error_name=Named(),
        event_type=HistoryEventType.TaskFailed,
        event_details={"taskFailedEventDetails": {"error": error, "cause": cause}},
    )
    made: Exception = FailureEventException(failure_event=event)
    return made


def _choices() -> None:
    """A Choice fails on a path that leads nowhere, unless it asks for its presence, and where no rule matches."""
    from moto.stepfunctions.parser.asl.component.state.choice.comparison.comparison_operator_type import (
        ComparisonOperatorType,
    )
    from moto.stepfunctions.parser.asl.component.state.choice.comparison.comparison_variable import ComparisonVariable
    from moto.stepfunctions.parser.asl.component.state.choice.comparison.variable import NoSuchVariable
    from moto.stepfunctions.parser.asl.component.state.choice.state_choice import StateChoice
    from moto.stepfunctions.parser.asl.eval import variable_store
    from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError

    present = StateChoice._eval_state

    def eval_body(self: Any, env: Any) -> None:
        compare = self.comparison_function
        self.variable.eval(env)
        missing = isinstance(env.stack[-1], NoSuchVariable)
        if missing and compare.operator_type is not ComparisonOperatorType.IsPresent:
            raise _invalid_path(env, self.variable.string_sampler)
        try:
            compare.eval(env)
        except (NoSuchJsonPathError, variable_store.NoSuchVariable):
            raise _invalid_path(env, getattr(compare, "string_variable_sample", compare.value)) from None

    def eval_state(self: Any, env: Any) -> None:
        try:
            present(self, env)
        except RuntimeError:
            cause = "Failed to transition out of the state. The state does not point to a next state."
            raise state_failure(env, RUNTIME, cause) from None

    replace(ComparisonVariable, "_eval_body", eval_body)
    replace(StateChoice, "_eval_state", eval_state)


def _invalid_path(env: Any, sampler: Any) -> Exception:
    """The error of a rule; a path is a text here, or what moto has made of it."""
    path = getattr(sampler, "context_object_path", None) or getattr(sampler, "literal_value", sampler)
    cause = f"Invalid path '{path}': The choice state's condition path references an invalid value."
    return state_failure(env, RUNTIME, cause)


def _wildcards() -> None:
    """Neither Retry nor Catch is for States.Runtime. No wildcard is for data that was too large before or after a task
    (Step Functions developer guide, 'Error names'); a task's result that is too large is an error of the task (decision
    101)."""
    from moto.stepfunctions.parser.asl.component.common.error_name.error_equals_decl import ErrorEqualsDecl

    present = ErrorEqualsDecl._eval_body

    def eval_body(self: Any, env: Any) -> None:
        error, names = env.stack[-1], [each.error_name for each in self.error_names]
        if error is None or error.error_name == RUNTIME:  # None: of a Fail state without an error, in a branch
            env.stack[-1] = False
        elif getattr(error, "is_terminal", False):
            env.stack[-1] = error.error_name in names
        elif error.error_name == DATA_LIMIT and "States.TaskFailed" in names:
            env.stack[-1] = True
        else:
            present(self, env)

    replace(ErrorEqualsDecl, "_eval_body", eval_body)


def _payloads() -> None:
    """Payloads are measured as UTF-8 and may have just 256 KiB; a task's parameters are measured, too. The error of
    a path that leads nowhere names its field."""
    from moto.stepfunctions.parser.asl.component.state import state
    from moto.stepfunctions.parser.asl.component.state.exec.state_task import state_task_lambda
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.service import state_task_service
    from moto.stepfunctions.parser.asl.component.state.exec.state_task.state_task import StateTask
    from moto.stepfunctions.parser.asl.utils.json_path import NoSuchJsonPathError

    for module in (state, state_task_lambda, state_task_service):
        replace(module, "is_within_size_quota", _fits)

    present = StateTask._eval_parameters

    def eval_parameters(self: Any, env: Any) -> Any:
        try:
            parameters = present(self, env=env)
        except NoSuchJsonPathError as missing:
            where = f"specified for the field '{env.next_field_name}' could not be found in the input"
            cause = f"The JSONPath '{missing.json_path}' {where} '{_text(missing.data)}'"
            raise state_failure(env, RUNTIME, cause) from None
        if not _fits(parameters):
            cause = "returned a result with a size exceeding the maximum number of bytes service limit."
            raise state_failure(env, DATA_LIMIT, f"The state/task '{self.name}' {cause}")
        return parameters

    replace(StateTask, "_eval_parameters", eval_parameters)


def _variables() -> None:
    """The variables of one state, and all variables together, have limits. The developer guide names no error for
    them; this is that of other data that is too large."""
    from moto.stepfunctions.parser.asl.component.common.assign.assign_decl import AssignDecl

    present = AssignDecl._eval_body

    def eval_body(self: Any, env: Any) -> None:
        present(self, env)
        store = env.variable_store
        assigned = {name: store.get(name) for name in store._declaration_tracing}
        if not _fits(assigned):
            limit = f"{MAX_PAYLOAD_BYTES} bytes for those of one state"
        elif _size(store._outer_scope | store._inner_scope) > MAX_VARIABLES_BYTES:
            limit = f"{MAX_VARIABLES_BYTES} bytes for those of an execution"
        else:
            return
        raise state_failure(env, DATA_LIMIT, f"The variables exceed the maximum of {limit}.")

    replace(AssignDecl, "_eval_body", eval_body)


def _fits(value: Any) -> bool:
    return _size(value) <= MAX_PAYLOAD_BYTES


def _size(value: Any) -> int:
    return len(_text(value).encode())


def _text(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=str)


def _full_histories() -> None:
    """An execution fails when its history has room for one event, unless that is its success. Its own errors,
    States.Runtime, are reported only by its last event, and not as those of a task."""
    from moto.stepfunctions.parser.api import HistoryEventType
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEventException
    from moto.stepfunctions.parser.asl.eval.event.event_manager import EventManager

    present = EventManager.add_event

    # A task's failure is an event as well, without room in the history: so it is neither retried nor caught.
    no_event = types.SimpleNamespace(error_name=None, event_type=HistoryEventType.TaskFailed, event_details={"": {}})

    class HistoryFull(FailureEventException):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__(failure_event=no_event)

        def get_execution_failed_event_details(self) -> dict[str, str]:
            cause = f"The execution reached the maximum number of history events ({MAX_EVENTS})."
            return {"error": RUNTIME, "cause": cause}

    def add_event(self: Any, context: Any, event_type: Any, event_details: Any = None, **named: Any) -> Any:
        told: Mapping[str, Any] = next(iter((event_details or {}).values()), {})
        if event_type == HistoryEventType.TaskFailed and told.get("error") == RUNTIME:
            return context.last_published_event_id
        is_end = event_type.value.startswith("Execution")
        if len(self._history_event_list) >= MAX_EVENTS - 1 and not is_end and not getattr(self, "is_stopped", False):
            raise HistoryFull
        return present(self, context, event_type, event_details, **named)

    replace(EventManager, "add_event", add_event)


def _entrances() -> None:
    """The cause of States.Runtime names the event of the state's entrance; moto names the last event."""
    from moto.stepfunctions.parser.asl.component.common.error_name.failure_event import FailureEvent

    present = FailureEvent.__init__

    def init(self: Any, env: Any, *arguments: Any, **named: Any) -> None:
        present(self, env, *arguments, **named)
        for event in reversed(env.event_manager._history_event_list):
            if event.get("stateEnteredEventDetails", {}).get("name") == self.state_name:
                self.source_event_id = event["id"]
                return

    replace(FailureEvent, "__init__", init)
