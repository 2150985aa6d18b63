"""One table of errors: what programs in pods, functions, state machines and documents name is an entry of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

import trainflow.errors
from trainer.runtime.errors import PeerLost, Terminated, TrainerError
from trainflow.errors import TrainflowError, named_errors
from trainflow.failures.error_table import Group, NamedError, error_list, error_table
from trainflow.failures.judging import Evidence, Strength, judge
from trainflow.failures.table import failure_table
from trainflow.state_machines import NAMES, definition

SENTENCE = re.compile(r"[A-Z].*\.", re.DOTALL)
ENTRIES = list(error_table().values())


@pytest.mark.parametrize("error", ENTRIES, ids=lambda error: error.name)
def test_an_entry_of_the_table_is_complete(error: NamedError) -> None:
    """Group, restart and fault have no defaults: the table is not read without them."""
    assert re.fullmatch(r"[A-Z][A-Za-z]+", error.name)
    assert SENTENCE.fullmatch(error.means)
    assert SENTENCE.fullmatch(error.what_to_do)
    assert all(word == word.lower() for word in error.words)
    assert error.group is Group.JOB or not (error.restart or error.words or error.named_by_programs)
    assert error.restart or error.same_node


def test_no_two_errors_have_the_same_advice() -> None:
    assert len({error.what_to_do for error in ENTRIES}) == len(ENTRIES)


def test_a_class_that_code_raises_or_catches_is_an_entry_of_the_table() -> None:
    written = {
        error.__name__
        for error in vars(trainflow.errors).values()
        if getattr(error, "__base__", None) is TrainflowError
    }
    assert written <= error_table().keys() == named_errors().keys()


def test_an_error_has_the_advice_of_its_entry() -> None:
    for name, entry in error_table().items():
        error = named_errors()[name]("It happened.")
        assert isinstance(error, TrainflowError)
        assert (type(error).__name__, str(error)) == (name, "It happened.")
        assert (error.what_to_do, error.input_at_fault) == (entry.what_to_do, entry.input_at_fault)


def test_a_program_names_the_errors_that_the_table_allows_and_no_others() -> None:
    classes = {error.__name__ for error in TrainerError.__subclasses__()}
    no_cause = {PeerLost.__name__, Terminated.__name__}
    assert classes - no_cause == {error.name for error in ENTRIES if error.named_by_programs}
    assert not no_cause & error_table().keys()


def test_a_worker_that_lost_a_peer_is_known_by_the_trainers_word() -> None:
    assert judge(Evidence(message=f"{PeerLost.__name__}: rank 3")).strength is Strength.CONSEQUENCE
    assert not PeerLost.is_cause


def test_a_rule_leads_to_an_error_in_which_a_job_can_end() -> None:
    led_to = {
        error
        for rule in failure_table().rules
        for error in (rule.error, rule.error_after_steps, *(exact for _, exact in rule.error_by_line))
    }
    assert {error.group for error in led_to} == {Group.JOB}


def test_errors_that_an_author_has_to_correct_are_not_restarted() -> None:
    assert not [name for name in error_list("restarted") if error_table()[name].input_at_fault]


@pytest.mark.parametrize("machine", NAMES)
def test_a_state_machine_names_no_error_that_is_not_in_the_table(machine: str) -> None:
    text = json.dumps(definition(machine))
    compared = set(re.findall(r'"Variable": "\$error\.Error", "StringEquals": "(\w+)"', text))
    raised = set(re.findall(r'"Error": "(\w+)"', text))
    matched = {
        name for found in re.findall(r'"ErrorEquals": \[([^]]*)\]', text) for name in re.findall(r'"(\w+)"', found)
    }
    assert compared | raised | matched <= error_table().keys()
    assert matched >= set(error_list("about_the_run"))


def test_documents_name_no_error_that_is_not_in_the_table() -> None:
    """An error is recognised by its ending."""
    endings = r"Failed|Invalid|NotFound|Unavailable|Reached|Timeout|Stalled|Unhealthy|Evicted|Preempted|Refused|Gone"
    for path in [*Path("docs").glob("*.md"), Path("README.md")]:
        named = set(re.findall(rf"`([A-Z][A-Za-z]+(?:{endings}))`", path.read_text()))
        assert named <= error_table().keys(), path
