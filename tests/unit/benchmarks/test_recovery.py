"""The parts of a recovery are found in the lines of rank 0."""

from __future__ import annotations

from dataclasses import asdict

import pytest

from benchmarks.recovery import page, ranks, runs
from benchmarks.recovery.parts import NotRecovered, Trials, recovery_parts
from benchmarks.recovery.run import GOALS, require_equal, summary
from benchmarks.result import BenchmarkFailed

BEFORE = [
    {"event": "began", "at": 0.5},
    {"event": "imported", "at": 1.0},
    {"event": "loaded", "at": 2.0},
    {"event": "step", "step": 1, "at": 3.0},
    {"event": "step", "step": 2, "at": 4.0},
]
AGAIN = [
    {"event": "began", "at": 6.0},
    {"event": "imported", "at": 7.0},
    {"event": "loaded", "at": 7.5},
    {"event": "step", "step": 2, "at": 8.0},
    {"event": "step", "step": 3, "at": 9.0},
]
PARTS = {"start": 1.5, "import": 1.0, "load": 0.5, "first step": 1.5, "total": 4.5, "beyond the program": 3.0}


def test_a_repeated_step_is_no_new_one() -> None:
    assert recovery_parts([*BEFORE, *AGAIN], killed_at=4.5) == PARTS


def test_a_step_of_the_dying_program_is_no_new_one() -> None:
    dying = {"event": "step", "step": 3, "at": 4.6}
    last = {"event": "step", "step": 4, "at": 9.5}
    parts = recovery_parts([*BEFORE, dying, *AGAIN, last], killed_at=4.5)
    assert (parts["first step"], parts["total"]) == (2.0, 5.0)


def test_the_parts_of_the_workflow_come_before_the_start() -> None:
    parts = recovery_parts([*BEFORE, *AGAIN], 4.5, {"detection": 5.0, "decision": 5.5})
    assert parts == PARTS | {"detection": 0.5, "decision": 0.5, "start": 0.5}


def test_a_start_that_failed_is_a_part_of_the_start() -> None:
    failed = [{"event": "began", "at": 5.0}, {"event": "imported", "at": 5.5}]
    assert recovery_parts([*BEFORE, *failed, *AGAIN], killed_at=4.5) == PARTS


def test_a_program_that_was_not_started_again_has_not_recovered() -> None:
    with pytest.raises(NotRecovered):
        recovery_parts(BEFORE, killed_at=4.5)


def test_trials_that_did_not_recover_are_counted_beside_the_medians() -> None:
    trials = Trials(recovered=[PARTS, PARTS | {"total": 6.5}, PARTS], not_recovered=2, weights={"a"})
    result = summary({"in the pods": trials, "torchrun --max-restarts": Trials(not_recovered=1)}, {})
    assert result.seconds == {"in the pods": PARTS | {"longest": 6.5}, "torchrun --max-restarts": {}}
    assert result.details["trials"]["in the pods"] == {"recovered": 3, "not recovered": 2}
    assert result.ratios == {}


def test_a_goal_counts_what_the_program_does_not_take_by_itself() -> None:
    slow = PARTS | {"beyond the program": 12.5}
    found = {runs.DEAD_RANK: Trials(recovered=[PARTS]), runs.DEAD_POD: Trials(recovered=[slow])}
    assert summary(found, {}).details["goals"] == {
        "dead rank": {"at most": 8.0, "beyond the program": 3.0, "reached": True},
        "dead pod": {"at most": 12.0, "beyond the program": 12.5, "reached": False},
    }


def test_a_class_without_a_recovery_has_no_goal_reached() -> None:
    assert summary({runs.DEAD_POD: Trials(not_recovered=3)}, {}).details["goals"] == {}
    assert {*runs.LOSSES, *ranks.LAUNCHERS} >= GOALS.keys()


def test_other_weights_than_those_of_a_calm_training_are_an_error() -> None:
    with pytest.raises(BenchmarkFailed, match="differ"):
        require_equal({"a"}, {"in the pods": Trials(weights={"a", "b"})})


def test_the_page_has_the_table_of_the_results() -> None:
    assert page.PAGE.read_text() == page.current()


def test_a_part_that_a_class_does_not_have_is_a_dash_in_the_table() -> None:
    found = {runs.DEAD_RANK: Trials(recovered=[PARTS]), runs.DEAD_NODE: Trials(not_recovered=1)}
    *_, rank, node = page.table(asdict(summary(found, {}))).splitlines()
    assert rank == "| dead rank | 1 of 1 | – | – | – | 1.5 | 1.0 | 0.5 | 1.5 | 4.5 | 4.5 | 3.0 | 8, reached |"
    assert node == f"| dead node, none | 0 of 1 |{' – |' * 10}  |"
