"""One list of error names: what a program in a pod calls an error, the workflow calls it too."""

from __future__ import annotations

from lambdas.logic.watching import LOST_A_PEER
from trainer.runtime.errors import PeerLost, Terminated, TrainerError
from trainflow.errors import named_errors


def test_every_error_of_the_trainer_keeps_its_name_in_the_workflow() -> None:
    causes = {error.__name__ for error in TrainerError.__subclasses__()} - {PeerLost.__name__, Terminated.__name__}
    assert causes <= set(named_errors())


def test_a_worker_that_lost_a_peer_is_known_by_the_trainers_word() -> None:
    assert f"{PeerLost.__name__}: " == LOST_A_PEER
    assert not PeerLost.is_cause
