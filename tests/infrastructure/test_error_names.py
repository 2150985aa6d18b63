"""One list of error names: what a program in a pod calls an error, the workflow calls it too."""

from __future__ import annotations

import pytest

from trainer.runtime.errors import PeerLost, Terminated, TrainerError
from trainflow.errors import named_errors
from trainflow.failures.judging import Evidence, Strength, judge
from trainflow.failures.table import failure_table, restarted_errors
from trainflow.protocol import error_names


def test_every_error_of_the_trainer_keeps_its_name_in_the_workflow() -> None:
    causes = {error.__name__ for error in TrainerError.__subclasses__()} - {PeerLost.__name__, Terminated.__name__}
    assert causes <= set(named_errors())


def test_the_list_names_the_errors_of_the_trainer_and_no_others() -> None:
    classes = {error.__name__ for error in TrainerError.__subclasses__()}
    assert classes == error_names.CAUSES | error_names.NO_CAUSE
    assert {PeerLost.__name__, Terminated.__name__} == error_names.NO_CAUSE
    assert set(named_errors()) >= error_names.CAUSES
    assert not error_names.NO_CAUSE & set(named_errors())


def test_an_error_that_the_workflow_does_not_know_cannot_be_made() -> None:
    with pytest.raises(TypeError, match="DiskOnFire is unknown to the workflow"):
        type("DiskOnFire", (TrainerError,), {})


def test_a_worker_that_lost_a_peer_is_known_by_the_trainers_word() -> None:
    assert judge(Evidence(message=f"{PeerLost.__name__}: rank 3")).strength is Strength.CONSEQUENCE
    assert not PeerLost.is_cause


def test_every_class_of_the_table_of_failures_is_an_error_of_the_workflow() -> None:
    assert set(failure_table().classes) <= set(named_errors())
    assert set(failure_table().classes) >= error_names.CAUSES


def test_errors_that_an_author_has_to_correct_are_not_restarted() -> None:
    assert not [name for name in restarted_errors() if named_errors()[name].input_at_fault]
