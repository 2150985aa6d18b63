"""No Choice reads what may be missing: Step Functions ends such an execution with States.Runtime, which no Catch sees.

The twin fails likewise, in runs that get there. So the texts are read as a compiler reads a program: a variable must be
assigned on every way to the state that reads it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from trainflow.spec.run_spec import RunSpec
from trainflow.state_machines import NAMES, definition
from trainflow.workflow.compile_cache import CacheUse
from trainflow.workflow.run import JobRef, MetricsCursor

State = dict[str, Any]

LEAST = {
    "version": 1,
    "name": "least",
    "workload": {"script": "train.py", "image": "trainer:test"},
    "compute": {"instance_type": "trn1.2xlarge"},
}
"""A spec with nothing but what it must have."""

FIELDS_OF_ERRORS = {"Error", "Cause"}
"""Fields of what a Catch assigns (Step Functions developer guide, 'Fallback states')."""

MODELS: dict[str, type[BaseModel]] = {"job": JobRef, "progress": MetricsCursor, "cache": CacheUse}
"""Models behind the variables; handlers return them with every field."""

PRESENCE = {"IsPresent"}
"""Comparisons that a missing path does not fail."""


def ways(states: dict[str, State]) -> Iterator[tuple[str, str, frozenset[str]]]:
    """Every way from a state to a next one, with the variables that are assigned on it."""
    for name, state in states.items():
        own = assigned(state)
        if "Next" in state:
            yield name, state["Next"], own
        for catcher in state.get("Catch", ()):
            yield name, catcher["Next"], assigned(catcher)
        for rule in state.get("Choices", ()):
            yield name, rule["Next"], assigned(rule)
        if "Default" in state:
            yield name, state["Default"], own


def assigned(part: State) -> frozenset[str]:
    return frozenset(name.removesuffix(".$") for name in part.get("Assign", {}))


def surely_assigned(text: dict[str, Any]) -> dict[str, frozenset[str]]:
    """Variables that have a value whenever a state begins, by the state."""
    states: dict[str, State] = text["States"]
    everything = frozenset(name for _, _, made in ways(states) for name in made)
    known = dict.fromkeys(states, everything)
    known[text["StartAt"]] = frozenset()
    into = defaultdict(list)
    for source, target, made in ways(states):
        into[target].append((source, made))
    changed = True
    while changed:
        changed = False
        for target, sources in into.items():
            now = frozenset.intersection(*(known[source] | made for source, made in sources))
            if target == text["StartAt"]:
                now = frozenset()
            if now != known[target]:
                known[target], changed = now, True
    return known


def comparisons(rule: State) -> Iterator[State]:
    """The comparisons of a rule, in the order in which they are made."""
    for operator in ("And", "Or"):
        for inner in rule.get(operator, ()):
            yield from comparisons(inner)
    if "Not" in rule:
        yield from comparisons(rule["Not"])
    if "Variable" in rule:
        yield rule


def read(rule: State) -> Iterator[str]:
    """Paths that a rule reads and that must be there: none that the rule itself has found to be present or not null."""
    checked: set[str] = set()
    for each in comparisons(rule):
        paths = [each["Variable"], *(value for key, value in each.items() if key.endswith("Path"))]
        if PRESENCE & each.keys():
            checked.add(each["Variable"])
            paths = paths[1:]
        yield from (path for path in paths if path not in checked)


CHOICES = [
    (name, state, path)
    for name in NAMES
    for state, content in definition(name)["States"].items()
    if content["Type"] == "Choice"
    for rule in content["Choices"]
    for path in read(rule)
]


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_that_a_choice_reads_is_assigned_on_every_way_to_it(name: str) -> None:
    text = definition(name)
    known = surely_assigned(text)
    missing = {
        (state, path)
        for machine, state, path in CHOICES
        if machine == name and not path.startswith("$$.")
        for variable in [re.split(r"[.\[]", path.removeprefix("$"))[0]]
        if variable not in known[state]
    }
    assert missing == set()


def test_every_field_of_the_spec_that_a_choice_reads_is_in_every_spec() -> None:
    spec = RunSpec.model_validate(LEAST).model_dump(mode="json")
    for _, _, path in CHOICES:
        if path.startswith("$run.spec."):
            value: Any = spec
            for field in path.removeprefix("$run.spec.").split("."):
                assert field in value, path
                value = value[field]


def test_every_field_of_an_error_that_a_choice_reads_is_one_that_errors_have() -> None:
    fields = {path.removeprefix("$error.") for _, _, path in CHOICES if path.startswith("$error.")}
    assert fields <= FIELDS_OF_ERRORS
    for name in NAMES:
        for state in definition(name)["States"].values():
            for part in (state, *state.get("Choices", ())):
                error = part.get("Assign", {}).get("error")
                assert error is None or {each.removesuffix(".$") for each in error} >= FIELDS_OF_ERRORS, part


def test_every_other_field_that_a_choice_reads_is_one_of_the_model_that_functions_return_whole() -> None:
    fields = [path.removeprefix("$").split(".") for _, _, path in CHOICES if path.count(".") == 1]
    for variable, field in fields:
        if variable != "error":
            assert field in MODELS[variable].model_fields, f"${variable}.{field}"
    first = definition("training")["States"]["ValidateRun"]["Assign"]["progress"]
    assert "last_step" in first, "before the first window"


def test_a_way_without_the_assignment_is_found() -> None:
    text = {
        "StartAt": "A",
        "States": {
            "A": {"Type": "Task", "Assign": {"x": 1}, "Next": "C", "Catch": [{"Next": "C", "Assign": {"y": 2}}]},
            "C": {"Type": "Choice", "Choices": [{"Variable": "$x", "IsNull": True, "Next": "D"}], "Default": "D"},
            "D": {"Type": "Succeed"},
        },
    }
    assert surely_assigned(text)["C"] == frozenset()
    text["States"]["A"]["Catch"][0]["Assign"] = {"x": 2}  # type: ignore[index]
    assert surely_assigned(text)["C"] == {"x"}
