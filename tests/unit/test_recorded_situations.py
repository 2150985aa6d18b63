"""Each moment of the recorded runs has its situation, and every surface shows the same one."""

from __future__ import annotations

import io
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta

import pytest
from rich.console import Console

from tests.unit.cli.recorded_runs import RecordedRun, recorded
from tests.unit.test_situation import MOMENTS
from trainflow.cli.follow.screen import screen
from trainflow.cli.operate.shown import details_json, details_text
from trainflow.cli.operate.top import Row, table_text
from trainflow.observed.run_state import RunState
from trainflow.page.view import announcement, figures
from trainflow.record.history import ExecutionHistory
from trainflow.record.run_states import state_of_history
from trainflow.record.situation import STATES, WITHOUT_PROGRESS, Kind, Tone, situation
from trainflow.workflow.restart import Restart
from trainflow.workflow.run_status import RunStatus

RUNS = ("succeeded", "worker_failed", "rejected", "aborted")
ENDS = {
    "succeeded": (Kind.SUCCEEDED, Tone.GOOD),
    "worker_failed": (Kind.FAILED, Tone.BAD),
    "rejected": (Kind.FAILED, Tone.BAD),
    "aborted": (Kind.STOPPED, Tone.NEUTRAL),
}


@dataclass(frozen=True)
class Moment:
    """A recorded run as it was after some of its events."""

    run: str
    state: str | None
    observed: RunState


def moments(name: str) -> Iterator[Moment]:
    """The run after each entry into a state, with the pods and steps of that time, and after its end."""
    whole = recorded(name)
    for number, event in enumerate(whole.history.events, start=1):
        is_last = number == len(whole.history.events)
        if event["type"].endswith("StateEntered") or is_last:
            history = replace(whole.history, events=whole.history.events[:number])
            yield Moment(name, event.get("stateEnteredEventDetails", {}).get("name"), _seen(whole, history))


def _seen(whole: RecordedRun, history: ExecutionHistory) -> RunState:
    now = history.events[-1]["timestamp"]
    state = state_of_history(whole.run_id, history, whole.children if history.ended_at else (), now=now)
    steps = tuple(step for step in whole.lines if step.logged_at <= now)
    pods = tuple(
        replace(pod, phase="Running", finished_at=None, exit_code=None) if (pod.finished_at or now) > now else pod
        for pod in whole.pods
        if pod.created_at is not None and pod.created_at <= now
    )
    return replace(state, steps=steps, pods=pods)


ALL = [moment for name in RUNS for moment in moments(name)]


def shown_on_screen(observed: RunState) -> str:
    console = Console(width=200, height=60, record=True, file=io.StringIO())
    console.print(screen(observed, max_height=60, max_width=200))
    return console.export_text()


def test_the_recorded_runs_have_at_least_sixty_moments() -> None:
    assert len(ALL) >= 60
    assert len(MOMENTS) >= 60


@pytest.mark.parametrize("moment", ALL, ids=lambda moment: f"{moment.run}-{moment.state or 'end'}")
def test_a_moment_of_a_recorded_run_has_the_situation_of_its_state(moment: Moment) -> None:
    found = situation(moment.observed)
    if moment.state is None:
        assert (found.kind, found.tone) == ENDS[moment.run]
        return
    expected = next(kind for kind, states in STATES.items() if moment.state in states)
    may_be = {expected, Kind.RECOVERING, Kind.STARTING} if expected in (Kind.TRAINING, Kind.COMPILING) else {expected}
    assert found.kind in may_be


def surfaces(observed: RunState) -> dict[str, str]:
    row = Row(run_id=observed.run_id, started_at=observed.observed_at, details=observed)
    return {
        "status": details_text(observed, observed.observed_at),
        "screen": shown_on_screen(observed),
        "json": details_json(observed)["situation"]["headline"],
        **({} if observed.status.is_over else {"top": table_text([row], observed.observed_at)}),
    }


OBSERVED = [(f"{moment.run}-{number}", moment.observed) for number, moment in enumerate(ALL)]
OBSERVED += [(name, observed) for name, (observed, _, _) in MOMENTS.items()]


@pytest.mark.parametrize("observed", [each for _, each in OBSERVED], ids=[name for name, _ in OBSERVED])
def test_every_surface_shows_the_headline_and_no_present_speed_without_steps(observed: RunState) -> None:
    found = situation(observed)
    for surface, text in surfaces(observed).items():
        assert found.headline in text, surface
        if found.kind in WITHOUT_PROGRESS:
            assert "sequences/s" not in text, surface
            assert "left" not in text.replace("time left", ""), surface
    assert announcement(observed, [])
    labels = {figure.label for figure in figures(observed, None)}
    assert "Speed" not in labels or found.kind not in WITHOUT_PROGRESS


@pytest.mark.parametrize("minutes", [2, 10, 60, 600])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 7])
def test_a_training_whose_steps_stop_is_silent_and_one_that_is_started_again_recovers(minutes: int, size: int) -> None:
    whole = recorded("succeeded")
    steps = tuple(whole.lines)
    base = RunState(
        run_id="a",
        status=RunStatus.RUNNING,
        state="WatchTraining",
        observed_at=steps[-1].logged_at + timedelta(minutes=minutes),
        steps=steps,
        pods=tuple(
            replace(whole.pods[0], name=f"a-training-{index}", stage="training", index=index, phase="Running")
            for index in range(size)
        ),
    )
    assert situation(base).kind is Kind.NO_STEP
    restart = Restart(
        stage="training", attempt=1, at=steps[-1].logged_at, error="WorkerFailed", message="", in_place=True
    )
    again = situation(replace(base, restarts=(restart,)))
    assert again.kind is Kind.RECOVERING
    assert again.sentence.startswith("The program was started again in its pods after WorkerFailed")
