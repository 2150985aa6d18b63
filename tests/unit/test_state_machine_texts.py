"""The texts of the state machines are YAML for people and nothing but JSON for Step Functions."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainflow.state_machines import NAMES, InvalidDefinition, definition, definition_json


def loaded(folder: Path, text: str) -> dict[str, Any]:
    (folder / "some.asl.yaml").write_text(text)
    return definition("some", folder=folder)


@pytest.mark.parametrize("name", NAMES)
def test_the_json_of_a_text_says_what_the_text_says(name: str) -> None:
    assert json.loads(definition_json(name)) == definition(name)
    assert set(definition(name)) == {"Comment", "StartAt", "States"}


def test_anchors_are_written_out_and_their_top_level_key_is_dropped(tmp_path: Path) -> None:
    text = "x-retries:\n  - &retry [{ErrorEquals: [States.ALL]}]\nStates:\n  A: {Retry: *retry}\n  B: {Retry: *retry}\n"
    made = loaded(tmp_path, text)
    assert made == {"States": {key: {"Retry": [{"ErrorEquals": ["States.ALL"]}]} for key in "AB"}}
    assert made["States"]["A"]["Retry"] is not made["States"]["B"]["Retry"], "a change of one is no change of the other"


def test_an_item_of_a_list_stands_for_every_error_of_the_list_that_it_names(tmp_path: Path) -> None:
    text = (
        "x-retries:\n  - &retry [{ErrorEquals: [x-errors:unavailable, States.Timeout], MaxAttempts: 3}]\nStates:\n"
        "  A: {Retry: *retry}\n  B: {Or: [{Variable: $error.Error, StringEquals: x-errors:ended_by_limit}]}\n"
    )
    names = ["ClusterUnavailable", "ServiceUnavailable", "States.Timeout"]
    assert loaded(tmp_path, text)["States"] == {
        "A": {"Retry": [{"ErrorEquals": names, "MaxAttempts": 3}]},
        "B": {
            "Or": [
                {"Variable": "$error.Error", "StringEquals": "BudgetReached"},
                {"Variable": "$error.Error", "StringEquals": "DeadlineReached"},
            ]
        },
    }


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("States: {A: {Or: [x-errors:of_nobody]}}", "some.asl.yaml, line 1: there is no list of errors of_nobody"),
        ("States: {A: {Variable: x-errors:restarted}}", "some.asl.yaml: write x-errors:<list> as an item of a list"),
    ],
)
def test_a_list_of_errors_that_does_not_exist_or_is_no_item_is_refused(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InvalidDefinition, match=problem):
        loaded(tmp_path, text)


def test_every_kind_of_json_value_is_read_as_json_reads_it(tmp_path: Path) -> None:
    values: dict[str, Any] = {
        "a": True,
        "b": False,
        "c": None,
        "d": 0,
        "e": -1,
        "f": 1.5e3,
        "g": "yes",
        "h": "$.a",
        "i": [],
        "j": {},
    }
    assert loaded(tmp_path, json.dumps(values)) == values, "JSON is YAML"
    assert loaded(
        tmp_path, "a: 'on'\nb: \"1e3\"\nc: |\n  2026-01-01\nd: arn:aws:states:::x\ne.$: States.MathAdd($a, 1)\n"
    ) == {
        "a": "on",
        "b": "1e3",
        "c": "2026-01-01\n",
        "d": "arn:aws:states:::x",
        "e.$": "States.MathAdd($a, 1)",
    }


TRAPS = {
    "a truth value of YAML 1.1": "on",
    "another": "No",
    "one that JSON writes otherwise": "True",
    "an exponent that is a string to YAML 1.1": "1e3",
    "an octal number of YAML 1.1": "010",
    "an octal number of YAML 1.2": "0o17",
    "a hexadecimal number": "0x1F",
    "a number with separators": "1_000",
    "a number in base 60": "1:30",
    "no number": ".nan",
    "an infinity": "-.inf",
    "a date": "2026-11-22",
    "a null of YAML": "~",
    "an empty value": "",
    "a value of a type": "!!binary aGk=",
    "a tag of an application": "!Ref Topic",
    "a tagged mapping": "!Sub {a: b}",
    "a set": "!!set {a, b}",
    "a merge key": "{<<: {a: 1}}",
    "a key that is no string": "{1: one}",
    "a key that is a truth value to YAML 1.1": "{on: 1}",
    "a list as a key": "{[a]: 1}",
    "a duplicate key": "{Retry: [], Catch: [], Retry: []}",
    "a reference to what it stands in": "&loop [*loop]",
}


@pytest.mark.parametrize("text", TRAPS.values(), ids=TRAPS.keys())
def test_what_is_not_json_is_refused_with_its_line(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidDefinition, match=r"^some\.asl\.yaml, line 2: .+\.$"):
        loaded(tmp_path, f"Comment: one\nTrap: {text}\n")


def test_a_duplicate_state_is_named_with_its_line(tmp_path: Path) -> None:
    with pytest.raises(InvalidDefinition, match=r"line 3: .*Preflight .*twice"):
        loaded(tmp_path, "States:\n  Preflight: {}\n  Preflight: {}\n")


@pytest.mark.parametrize("text", ["", "a", "[a]"])
def test_a_text_without_states_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidDefinition, match=r"mapping.*StartAt and States"):
        loaded(tmp_path, text)


@pytest.mark.parametrize("text", ["a: b: c", "a: [", "a: *nothing", "a: 1\n---\nb: 2", "a: \x00"])
def test_a_text_that_is_no_yaml_is_refused_in_one_sentence(tmp_path: Path, text: str) -> None:
    with pytest.raises(InvalidDefinition, match="this is not YAML"):
        loaded(tmp_path, text)
