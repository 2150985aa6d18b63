"""The strip of phases of a run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from trainflow.observed.run_state import RunState
from trainflow.observed.visit import Visit
from trainflow.page.strip import NAMES, strip, usual_seconds
from trainflow.record.situation import STATES
from trainflow.workflow.run_status import RunStatus

BEGIN = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
RESTART = (("WatchTraining", 30), ("CountRestart", 0.1), ("DeleteJob", 5), ("EnsureCapacity", 2))


def run(*stays: tuple[str, float], status: RunStatus = RunStatus.RUNNING) -> RunState:
    """A run that was in these states for so many seconds; it is still in the last one if it goes on."""
    visits, now = [], BEGIN
    for name, seconds in stays:
        visits.append(
            Visit(name=name, kind="Task", entered_at=now, exited_at=(now := now + timedelta(seconds=seconds)))
        )
    return RunState(
        run_id="bert-1",
        status=status,
        observed_at=now,
        started_at=BEGIN,
        ended_at=now if status.is_over else None,
        states=tuple(visits),
        state=stays[-1][0] if stays and not status.is_over else None,
    )


def in_words(state: RunState) -> list[str]:
    return [" ".join(filter(None, (phase.name, phase.tone, phase.time, phase.note))) for phase in strip(state)]


def test_every_kind_of_state_has_a_phase() -> None:
    assert set(NAMES) == set(STATES)


def test_a_run_that_goes_on_shows_what_was_what_is_and_what_is_next() -> None:
    assert in_words(run(("ValidateRun", 1), ("Preflight", 3), ("EnsureCapacity", 60))) == [
        "Checks done 4.0 s",
        "Nodes current 1 min 00 s",
        "Training ahead",
        "Publication ahead",
    ]


def test_a_run_without_a_state_has_its_way_before_it() -> None:
    assert in_words(run()) == ["Checks ahead", "Nodes ahead", "Training ahead", "Publication ahead"]


def test_a_failed_run_names_the_phase_in_which_it_failed() -> None:
    failed = run(
        ("ValidateRun", 1),
        ("EnsureCapacity", 9),
        ("WatchTraining", 30),
        ("ShouldSubmitAgain", 0),
        ("CollectDiagnostics", 2),
        status=RunStatus.FAILED,
    )
    assert in_words(failed) == ["Checks done 1.0 s", "Nodes done 9.0 s", "Training bad 30 s", "Clean-up done 2.0 s"]


def test_a_decision_of_no_length_is_no_phase() -> None:
    assert in_words(run(("Preflight", 4), ("NeedsCache", 0.01), ("EnsureCapacity", 1)))[:2] == [
        "Checks done 4.0 s",
        "Nodes current 1.0 s",
    ]


def test_a_restart_is_shown_where_it_happened() -> None:
    assert in_words(run(("Preflight", 4), *RESTART, ("WatchTraining", 7))) == [
        "Checks done 4.0 s",
        "Training lost 30 s",
        "Recovery done 5.1 s",
        "Nodes done 2.0 s",
        "Training current 7.0 s",
        "Publication ahead",
    ]


@pytest.mark.parametrize("stays", [RESTART[:-1], RESTART])
def test_after_a_restart_its_phase_is_still_to_come(stays: tuple[tuple[str, float], ...]) -> None:
    assert in_words(run(("Preflight", 4), *stays))[-2:] == ["Training ahead", "Publication ahead"]


@pytest.mark.parametrize("restarts", [3, 5, 7])
def test_many_restarts_become_one_phase_each_with_their_number(restarts: int) -> None:
    assert in_words(run(("Preflight", 4), *RESTART * restarts, ("WatchTraining", 30)))[1:4] == [
        f"Training current {_minutes(30 * (restarts + 1))} {restarts + 1} times",
        f"Recovery done {_seconds(5.1 * restarts)} {restarts} times",
        f"Nodes done {_seconds(2.0 * restarts)} {restarts} times",
    ]


def _minutes(seconds: float) -> str:
    return f"{int(seconds) // 60} min {int(seconds) % 60:02d} s"


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 9.95 else f"{round(seconds)} s"


def test_a_stopped_run_ends_in_the_phase_in_which_it_was_stopped() -> None:
    assert (
        in_words(run(("Preflight", 4), ("WatchTraining", 9), status=RunStatus.ABORTED))[-1] == "Training stopped 9.0 s"
    )


def test_the_usual_length_of_a_phase_is_the_median_of_runs_that_ended_well() -> None:
    good = [run(("Preflight", seconds), status=RunStatus.SUCCEEDED) for seconds in (2, 4, 90)]
    bad = run(("Preflight", 500), status=RunStatus.FAILED)
    assert usual_seconds([*good, bad]) == {"Checks": (4.0, 3)}
