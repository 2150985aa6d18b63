"""Definitions that CreateStateMachine and UpdateStateMachine refuse: what no execution could follow.

moto 5.2.5 checks the grammar of its parser only. Sources: Amazon States Language specification; Step Functions
developer guide and API reference; refusals recorded on AWS (`tests/assets/aws/definitions.yaml`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from local.aws import integrations
from local.aws.intrinsics import InvalidCall, parse
from local.aws.replacements import replace

State = Mapping[str, Any]

MAX_NAME_LENGTH = 80
"""Characters of a state's or variable's name (Amazon States Language)."""

MAX_SECONDS = 99_999_999
"""Longest wait and longest time limit of a state (Step Functions developer guide, 'Wait state', 'Task state')."""

FLOW = ("InputPath", "OutputPath")
AFTER = ("Next", "End")
WORK = ("Parameters", "ResultSelector", "ResultPath", "Retry", "Catch", "Assign")
FIELDS: Mapping[str, frozenset[str]] = {
    kind: frozenset(("Type", "Comment", "QueryLanguage", *fields))
    for kind, fields in {
        "Task": (
            *(*FLOW, *AFTER, *WORK, "Resource", "Credentials"),
            *("TimeoutSeconds", "TimeoutSecondsPath", "HeartbeatSeconds", "HeartbeatSecondsPath"),
        ),
        "Wait": (*FLOW, *AFTER, "Assign", "Seconds", "SecondsPath", "Timestamp", "TimestampPath"),
        "Pass": (*FLOW, *AFTER, "Assign", "Parameters", "Result", "ResultPath"),
        "Succeed": FLOW,
        "Fail": ("Error", "ErrorPath", "Cause", "CausePath"),
        "Choice": (*FLOW, "Assign", "Choices", "Default"),
        "Parallel": (*FLOW, *AFTER, *WORK, "Branches"),
        "Map": (
            *(*FLOW, *AFTER, *WORK, "Iterator", "ItemProcessor", "ItemsPath", "ItemSelector", "Label"),
            *("ItemReader", "ItemBatcher", "ResultWriter", "MaxConcurrency", "MaxConcurrencyPath"),
            *("ToleratedFailurePercentage", "ToleratedFailurePercentagePath"),
            *("ToleratedFailureCount", "ToleratedFailureCountPath"),
        ),
    }.items()
}
"""Fields of each type of state, in JSONPath."""

RETRIER = frozenset(
    {"ErrorEquals", "IntervalSeconds", "MaxAttempts", "BackoffRate", "MaxDelaySeconds", "JitterStrategy", "Comment"}
)
CATCHER = frozenset({"ErrorEquals", "Next", "ResultPath", "Assign", "Comment"})
PATHS = ("SecondsPath", "TimestampPath", "TimeoutSecondsPath", "HeartbeatSecondsPath", "ItemsPath", *FLOW)
TEMPLATES = ("Parameters", "ResultSelector", "ItemSelector", "Assign")

REFERENCE_PATH = re.compile(r"\$(\.[^\s.\[\]()*?@,:'\"]+|\['[^']+'\]|\[\d+\])*")
VARIABLE = re.compile(rf"[^\W\d]\w{{0,{MAX_NAME_LENGTH - 1}}}")
RFC3339 = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII)


def refuse_invalid() -> None:
    """Refuse invalid definitions with the service's code; moto's error lacks it."""
    from moto.core.exceptions import AWSError
    from moto.stepfunctions.parser import api
    from moto.stepfunctions.parser.models import StepFunctionsParserBackend

    present = StepFunctionsParserBackend._validate_definition

    def validate(definition: str) -> None:
        try:
            faults = ", ".join(faults_in(definition))
            if not faults:
                present(definition=definition)
        except api.InvalidDefinition as error:
            faults = str(error)
        if faults:
            raise AWSError(f"Invalid State Machine Definition: '{faults}'", "InvalidDefinition")

    replace(StepFunctionsParserBackend, "_validate_definition", staticmethod(validate))


def faults_in(text: str) -> Iterator[str]:
    """The reasons why the service would refuse a definition, and why the twin does."""
    try:
        machine = json.loads(text)
    except ValueError as error:
        yield f"INVALID_JSON_DESCRIPTION: {error}"
        return
    if not isinstance(machine, Mapping):
        yield "INVALID_JSON_DESCRIPTION: a definition is an object"
        return
    if languages := [place for place, value in _languages(machine, "") if value != "JSONPath"]:
        yield f"The twin executes JSONPath only. Rewrite what is in JSONata at {languages[0] or '/'}"
        return
    names: dict[str, str] = {}
    yield from _faults_of_machine(machine, "", names)


def _languages(value: Any, place: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        if "QueryLanguage" in value:
            yield place, value["QueryLanguage"]
        for name, each in value.items():
            yield from _languages(each, f"{place}/{name}")
    elif isinstance(value, list):
        for number, each in enumerate(value):
            yield from _languages(each, f"{place}[{number}]")


def _schema(message: str, place: str) -> str:
    return f"SCHEMA_VALIDATION_FAILED: {message} at {place or '/'}"


def _faults_of_machine(machine: State, place: str, names: dict[str, str]) -> Iterator[str]:
    missing = [field for field in ("StartAt", "States") if not machine.get(field)]
    if missing:
        yield _schema(f"These fields are required: [{', '.join(missing)}]", place)
        return
    states = machine["States"]
    if not isinstance(states, Mapping) or not all(isinstance(state, Mapping) for state in states.values()):
        yield _schema("The field 'States' should be an object of states", place)
        return
    targets = [(machine["StartAt"], f"{place}/StartAt")]
    for name, state in states.items():
        at = f"{place}/States/{name}"
        if len(name) > MAX_NAME_LENGTH:
            yield _schema(f"State name exceeds {MAX_NAME_LENGTH} characters", at)
        if name in names:
            yield f"DUPLICATE_STATE_NAME: Duplicate State name: {name} at {at}"
        names[name] = at
        faults = list(_faults_of_state(state, at, names))
        yield from faults
        targets += _targets(state, at)
    for target, at in targets:
        if target not in states:
            yield f"MISSING_TRANSITION_TARGET: Missing 'Next' target: {target} at {at}"
    for name in states.keys() - {target for target, _ in targets}:
        yield f'MISSING_TRANSITION_TARGET: State "{name}" is not reachable. at {place}/States/{name}'


def _targets(state: State, place: str) -> Iterator[tuple[str, str]]:
    for field in ("Next", "Default"):
        if isinstance(state.get(field), str):
            yield state[field], f"{place}/{field}"
    for field in ("Choices", "Catch"):
        rules = state.get(field)
        for number, rule in enumerate(rules if isinstance(rules, list) else ()):
            if isinstance(rule, Mapping) and isinstance(rule.get("Next"), str):
                yield rule["Next"], f"{place}/{field}/{number}/Next"


def _faults_of_state(state: State, place: str, names: dict[str, str]) -> Iterator[str]:
    kind = str(state.get("Type"))
    if kind not in FIELDS:
        yield _schema(f"The field 'Type' should have one of these values: [{', '.join(FIELDS)}]", f"{place}/Type")
        return
    for field in state.keys() - FIELDS[kind]:
        yield _schema(f"Field '{field}' is not supported in a state of the type {kind}", f"{place}/{field}")
    if "Next" in FIELDS[kind] and ("Next" in state) == (state.get("End") is True):
        yield _schema("One of the fields 'Next' and 'End' is required", place)
    yield from _faults_of_values(state, place)
    if kind == "Choice":
        yield from _faults_of_choices(state, place)
    elif kind == "Task":
        yield from integrations.faults_of_task(state, place)
    elif kind == "Wait":
        yield from _faults_of_wait(state, place)
    yield from _faults_of_rules(state, place)
    yield from _faults_of_branches(state, kind, place, names)


def _faults_of_branches(state: State, kind: str, place: str, names: dict[str, str]) -> Iterator[str]:
    if kind == "Parallel" and not state.get("Branches"):
        yield _schema("Value cannot be empty", f"{place}/Branches")
    branches = state.get("Branches")
    for number, branch in enumerate(branches if isinstance(branches, list) else ()):
        yield from _faults_of_machine(branch, f"{place}/Branches/{number}", names)
    for field in ("ItemProcessor", "Iterator"):
        if isinstance(state.get(field), Mapping):
            yield from _faults_of_machine(state[field], f"{place}/{field}", names)


def _faults_of_values(state: State, place: str) -> Iterator[str]:
    for field, least in {"TimeoutSeconds": 1, "HeartbeatSeconds": 1, "Seconds": 0}.items():
        if field in state and not _is_whole(state[field], least, MAX_SECONDS):
            yield _schema(f"Value should be between {least} and {MAX_SECONDS}", f"{place}/{field}")
    for field in PATHS:
        value = state.get(field)
        if value is not None and not _is_path(value):
            yield _schema(f"The value for the field '{field}' must be a valid JSONPath", f"{place}/{field}")
    if "ResultPath" in state and state["ResultPath"] is not None and not _is_reference(state["ResultPath"]):
        yield _schema("Value is not a Reference Path: ResultPath", f"{place}/ResultPath")
    for field in TEMPLATES:
        yield from _faults_of_template(state.get(field), f"{place}/{field}")
    yield from _faults_of_variables(state.get("Assign"), f"{place}/Assign")


def _is_whole(value: Any, least: int, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and least <= value <= most


def _is_path(value: Any) -> bool:
    return isinstance(value, str) and value.startswith("$")


def _is_reference(value: Any) -> bool:
    return isinstance(value, str) and REFERENCE_PATH.fullmatch(value) is not None


def _faults_of_template(value: Any, place: str) -> Iterator[str]:
    """A key that ends with `.$` has a path or a call of an intrinsic function."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from _faults_of_template(item, f"{place}[{number}]")
    if not isinstance(value, Mapping):
        return
    for key, each in value.items():
        if not key.endswith(".$"):
            yield from _faults_of_template(each, f"{place}/{key}")
        elif not _is_path(each) and not _is_call(each):
            said = f"The value for the field '{key}' must be a valid JSONPath or a valid intrinsic function call"
            yield _schema(said, place)


def _is_call(value: Any) -> bool:
    try:
        return isinstance(value, str) and parse(value) is not None
    except InvalidCall:
        return False


def _faults_of_variables(assign: Any, place: str) -> Iterator[str]:
    for key in assign if isinstance(assign, Mapping) else ():
        name = key.removesuffix(".$")
        if not VARIABLE.fullmatch(name) or name == "states":
            yield _schema(f"Invalid variable name: {name}", place)


def _faults_of_rules(state: State, place: str) -> Iterator[str]:
    for field, known in {"Retry": RETRIER, "Catch": CATCHER}.items():
        rules = state.get(field, [])
        for number, rule in enumerate(rules if isinstance(rules, list) else (), start=1):
            at = f"{place}/{field}[{number - 1}]"
            names = rule.get("ErrorEquals")
            if not names or not all(isinstance(name, str) for name in names):
                yield _schema("Value cannot be empty", f"{at}/ErrorEquals")
            elif "States.ALL" in names and (len(names) > 1 or number < len(rules)):
                yield _schema("States.ALL must be alone and in the last place", at)
            yield from (_schema(f"Field '{name}' is not supported", at) for name in rule.keys() - known)
            yield from _faults_of_retrier(rule, at) if field == "Retry" else _faults_of_catcher(rule, at)


def _faults_of_catcher(rule: State, place: str) -> Iterator[str]:
    if not isinstance(rule.get("Next"), str):
        yield _schema("The field 'Next' is required but was missing", place)
    if rule.get("ResultPath") is not None and not _is_reference(rule["ResultPath"]):
        yield _schema("Value is not a Reference Path: ResultPath", f"{place}/ResultPath")
    yield from _faults_of_template(rule.get("Assign"), f"{place}/Assign")
    yield from _faults_of_variables(rule.get("Assign"), f"{place}/Assign")


MAX_DELAY_SECONDS = 31_622_400
"""Most of `MaxDelaySeconds` (Step Functions developer guide, 'Retrying after an error')."""


def _faults_of_retrier(rule: State, place: str) -> Iterator[str]:
    limits = {
        "IntervalSeconds": (1, MAX_SECONDS),
        "MaxAttempts": (0, MAX_SECONDS),
        "MaxDelaySeconds": (1, MAX_DELAY_SECONDS),
    }
    for field, (least, most) in limits.items():
        if field in rule and not _is_whole(rule[field], least, most):
            yield _schema(f"Value should be between {least} and {most}", f"{place}/{field}")
    rate = rule.get("BackoffRate", 1)
    if not isinstance(rate, int | float) or isinstance(rate, bool) or rate < 1:
        yield _schema("Value should be at least 1.0", f"{place}/BackoffRate")
    if rule.get("JitterStrategy", "NONE") not in ("FULL", "NONE"):
        yield _schema("The field 'JitterStrategy' should have one of these values: [FULL, NONE]", place)


def _faults_of_wait(state: State, place: str) -> Iterator[str]:
    given = [field for field in ("Seconds", "SecondsPath", "Timestamp", "TimestampPath") if field in state]
    if len(given) != 1:
        yield _schema("Exactly one of Seconds, SecondsPath, Timestamp and TimestampPath is required", place)
    if "Timestamp" in state and not _is_timestamp(state["Timestamp"]):
        yield _schema("String does not match RFC3339 timestamp", f"{place}/Timestamp")


def _is_timestamp(value: Any) -> bool:
    try:
        return isinstance(value, str) and bool(RFC3339.fullmatch(value)) and bool(datetime.fromisoformat(value))
    except ValueError:
        return False


KINDS = {
    "String": lambda value: isinstance(value, str),
    "Numeric": lambda value: isinstance(value, int | float) and not isinstance(value, bool),
    "Boolean": lambda value: isinstance(value, bool),
    "Timestamp": _is_timestamp,
}
TESTS = tuple(f"Is{name}" for name in ("Null", "Present", "Numeric", "String", "Boolean", "Timestamp"))
ORDERED = ("Equals", "LessThan", "GreaterThan", "LessThanEquals", "GreaterThanEquals")
OPERATORS = {
    **{f"{kind}{order}": kind for kind in ("String", "Numeric", "Timestamp") for order in ORDERED},
    "BooleanEquals": "Boolean",
    "StringMatches": "String",
}
"""Kind of the value of each comparison."""


def _faults_of_choices(state: State, place: str) -> Iterator[str]:
    rules = state.get("Choices")
    if not isinstance(rules, list) or not rules:
        yield _schema("Value cannot be empty", f"{place}/Choices")
        return
    for number, rule in enumerate(rules):
        at = f"{place}/Choices[{number}]"
        if not isinstance(rule, Mapping) or not isinstance(rule.get("Next"), str):
            yield _schema("The field 'Next' is required but was missing", at)
        else:
            fields = {name: value for name, value in rule.items() if name not in ("Next", "Assign", "Comment")}
            yield from _faults_of_rule(fields, at)
            yield from _faults_of_variables(rule.get("Assign"), f"{at}/Assign")


def _faults_of_rule(rule: Any, place: str) -> Iterator[str]:
    if not isinstance(rule, Mapping):
        yield _schema("A rule is an object", place)
        return
    if rule.keys() <= {"And", "Or", "Not"} and len(rule) == 1:
        ((name, inner),) = rule.items()
        rules = [inner] if name == "Not" else inner
        if not isinstance(rules, list) or not rules:
            yield _schema("Value cannot be empty", f"{place}/{name}")
            return
        for number, each in enumerate(rules):
            yield from _faults_of_rule(each, f"{place}/{name}[{number}]")
        return
    operators = rule.keys() - {"Variable", "Comment"}
    if not _is_path(rule.get("Variable")) or len(operators) != 1:
        yield _schema("A rule has a Variable, which is a path, and one comparison", place)
        return
    (operator,) = operators
    if not _is_operand(operator, rule[operator]):
        yield _schema(f"Invalid comparison {operator}", place)


def _is_operand(operator: str, value: Any) -> bool:
    if operator in TESTS:
        return isinstance(value, bool)
    kind = OPERATORS.get(operator)
    if kind is None:
        return operator.removesuffix("Path") in OPERATORS and operator.endswith("Path") and _is_path(value)
    return bool(KINDS[kind](value))
