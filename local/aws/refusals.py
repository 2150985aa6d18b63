"""Refusals of Step Functions that moto 5.2.5 lacks: paths that lead nowhere, payloads beyond 256 KiB, histories
beyond 25,000 events, names and definitions that it could not execute.

Where the developer guide and executions on AWS differ, this does as the executions (decision 50). All patches replace
private functions: check them again when moto's version is raised.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Iterator, Mapping
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

MAX_NAME_LENGTH = 80
"""Characters of an execution's name (API reference, 'StartExecution') and of a state's (Amazon States Language)."""

MOST_RESULTS = 1_000
"""Executions of a page (API reference, 'ListExecutions')."""

RUNTIME = "States.Runtime"
DATA_LIMIT = "States.DataLimitExceeded"


def apply_all() -> None:
    """Apply every patch of this module."""
    _choices()
    _wildcards()
    _payloads()
    _variables()
    _full_histories()
    _starts()
    _lists()
    _definitions()


def _failure(env: Any, error: str, cause: str) -> Exception:
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
            raise _failure(env, RUNTIME, cause) from None

    replace(ComparisonVariable, "_eval_body", eval_body)
    replace(StateChoice, "_eval_state", eval_state)


def _invalid_path(env: Any, sampler: Any) -> Exception:
    """The error of a rule; a path is a text here, or what moto has made of it."""
    path = getattr(sampler, "context_object_path", None) or getattr(sampler, "literal_value", sampler)
    cause = f"Invalid path '{path}': The choice state's condition path references an invalid value."
    return _failure(env, RUNTIME, cause)


def _wildcards() -> None:
    """Neither Retry nor Catch is for States.Runtime. No wildcard is for data that was too large before or after a task
    (Step Functions developer guide, 'Error names'); a task's result that is too large is an error of the task (decision
    101)."""
    from moto.stepfunctions.parser.asl.component.common.error_name.error_equals_decl import ErrorEqualsDecl

    present = ErrorEqualsDecl._eval_body

    def eval_body(self: Any, env: Any) -> None:
        error, names = env.stack[-1], [each.error_name for each in self.error_names]
        if error.error_name == RUNTIME:
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
            raise _failure(env, RUNTIME, cause) from None
        if not _fits(parameters):
            cause = "returned a result with a size exceeding the maximum number of bytes service limit."
            raise _failure(env, DATA_LIMIT, f"The state/task '{self.name}' {cause}")
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
        raise _failure(env, DATA_LIMIT, f"The variables exceed the maximum of {limit}.")

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


_BAD_IN_NAMES = re.compile(r"[\s<>{}\[\]?*\"#%\\^|~`$&,;:/\x00-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
"""Characters that a name may not contain (API reference, 'StartExecution')."""


def _starts() -> None:
    """StartExecution takes inputs of 256 KiB, and names of 80 characters that ARNs can hold."""
    from moto.stepfunctions.exceptions import InvalidName, NameTooLongException, ValidationException
    from moto.stepfunctions.parser.models import StepFunctionsParserBackend

    present = StepFunctionsParserBackend.start_execution

    def start_execution(
        self: Any, state_machine_arn: str, name: str | None = None, execution_input: str | None = None, *rest: Any
    ) -> Any:
        if name is not None and len(name) > MAX_NAME_LENGTH:
            raise NameTooLongException(name)
        if name is not None and (not name or _BAD_IN_NAMES.search(name)):
            raise InvalidName(f"Invalid Name: '{name}'")
        if len((execution_input or "").encode()) > MAX_PAYLOAD_BYTES:
            raise ValidationException(
                "1 validation error detected: Value at 'input' failed to satisfy constraint: "
                f"Member must have length less than or equal to {MAX_PAYLOAD_BYTES}"
            )
        return present(self, state_machine_arn, name, execution_input, *rest)

    replace(StepFunctionsParserBackend, "start_execution", start_execution)


def _lists() -> None:
    """ListExecutions answers at most 1,000 executions at a time."""
    from moto.stepfunctions.exceptions import ValidationException
    from moto.stepfunctions.responses import StepFunctionResponse

    present = StepFunctionResponse.list_executions

    def list_executions(self: Any) -> Any:
        if (self._get_int_param("maxResults") or 0) > MOST_RESULTS:
            raise ValidationException(
                "1 validation error detected: Value at 'maxResults' failed to satisfy constraint: "
                f"Member must have value less than or equal to {MOST_RESULTS}"
            )
        return present(self)

    replace(StepFunctionResponse, "list_executions", list_executions)


def _definitions() -> None:
    """CreateStateMachine and UpdateStateMachine refuse a definition that could not be executed."""
    from moto.core.exceptions import AWSError
    from moto.stepfunctions.parser import api
    from moto.stepfunctions.parser.models import StepFunctionsParserBackend

    class InvalidDefinition(AWSError):  # type: ignore[misc]
        TYPE = "InvalidDefinition"
        STATUS = 400

    present = StepFunctionsParserBackend._validate_definition

    def validate(definition: str) -> None:
        try:
            present(definition=definition)
            faults = faults_of(json.loads(definition))
        except api.InvalidDefinition as error:
            raise InvalidDefinition(f"Invalid State Machine Definition: '{error}'") from None
        if found := ", ".join(faults):
            raise InvalidDefinition(f"Invalid State Machine Definition: '{found}'")

    replace(StepFunctionsParserBackend, "_validate_definition", staticmethod(validate))


def faults_of(machine: Mapping[str, Any], *, at: str = "") -> Iterator[str]:
    """The reason why the service would refuse a definition, or a part of one, that follows the grammar.

    Args:
        machine: An object with StartAt and States.
        at: Where it is.
    """
    for field in ("StartAt", "States"):
        if not machine.get(field):
            yield f"SCHEMA_VALIDATION_FAILED: The field '{field}' is required at {at or '/'}"
            return
    states: Mapping[str, Mapping[str, Any]] = machine["States"]
    targets = [(machine["StartAt"], f"{at}/StartAt")]
    for name, state in states.items():
        place = f"{at}/States/{name}"
        if len(name) > MAX_NAME_LENGTH:
            yield f"SCHEMA_VALIDATION_FAILED: State name exceeds {MAX_NAME_LENGTH} characters at {place}"
        yield from _faults_of_state(state, place)
        targets += _targets(state, place)
        for number, branch in enumerate(state.get("Branches", ())):
            yield from faults_of(branch, at=f"{place}/Branches/{number}")
        for field in ("ItemProcessor", "Iterator"):
            if field in state:
                yield from faults_of(state[field], at=f"{place}/{field}")
    yield from (
        f"MISSING_TRANSITION_TARGET: Missing 'Next' target: {to} at {at}" for to, at in targets if to not in states
    )


def _faults_of_state(state: Mapping[str, Any], place: str) -> Iterator[str]:
    kind = state.get("Type")
    if kind == "Choice" and not state.get("Choices"):
        yield f"SCHEMA_VALIDATION_FAILED: The field 'Choices' is required and not empty at {place}"
    if kind in ("Task", "Pass", "Wait", "Parallel", "Map") and ("Next" in state) == (state.get("End") is True):
        yield f"SCHEMA_VALIDATION_FAILED: One of the fields 'Next' and 'End' is required at {place}"
    for field in ("Retry", "Catch"):
        rules = state.get(field, ())
        for number, rule in enumerate(rules, start=1):
            names = rule.get("ErrorEquals", ())
            if "States.ALL" in names and (len(names) > 1 or number < len(rules)):
                yield f"SCHEMA_VALIDATION_FAILED: States.ALL must be alone and in the last place at {place}/{field}"


def _targets(state: Mapping[str, Any], place: str) -> Iterator[tuple[str, str]]:
    for field in ("Next", "Default"):
        if field in state:
            yield state[field], f"{place}/{field}"
    for field in ("Choices", "Catch"):
        for number, rule in enumerate(state.get(field, ())):
            if "Next" in rule:
                yield rule["Next"], f"{place}/{field}/{number}/Next"
