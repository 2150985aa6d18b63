from __future__ import annotations

import io
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from recorded_runs import RecordedRun, recorded
from replay import ReplayedObserver, snapshot_at
from rich.console import Console

from tests.wording import wording
from trainflow.cli.follow import follow, summarize
from trainflow.cli.follow.plain import PlainView
from trainflow.cli.follow.screen import at_time, screen
from trainflow.cli.follow.staging import staging_line
from trainflow.errors import WorkerFailed
from trainflow.observed.run_state import RunState
from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.protocol.staging_line import StagingReport
from trainflow.record.wording import clock
from trainflow.spec.total_steps import total_steps
from trainflow.workflow.run_record import Cost, Restart, RunStatus

pytestmark = pytest.mark.lengthy


@cache
def followed(name: str) -> list[str]:
    """The lines that are printed when the recorded run of that name is followed into a file."""
    console = Console(file=io.StringIO(), force_terminal=False, width=60)
    observer = ReplayedObserver(recorded(name), polls=500)
    follow(observer, console, observer.is_finished, pause=lambda: None)
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def drawn(snapshot: RunState, *, width: int = 100, height: int = 40) -> str:
    console = Console(file=io.StringIO(), force_terminal=True, width=width, height=height, color_system=None)
    console.print(screen(snapshot, max_height=height, max_width=width))
    return console.file.getvalue()  # type: ignore[attr-defined]


def after(run: RecordedRun, seconds: float) -> RunState:
    return snapshot_at(run, run.history.events[0]["timestamp"] + timedelta(seconds=seconds))


def test_each_state_is_printed_once_and_choices_are_not() -> None:
    states = [line.split("] state ")[1] for line in followed("succeeded") if "] state " in line]

    assert states == [
        "ValidateRun",
        "Preflight",
        "WaitForPreflight",
        "StageData",
        "WaitForStaging",
        "AcquireCache",
        "EnsureCapacity",
        "WaitForNodes",
        "SubmitPrecompile",
        "WatchPrecompile",
        "CheckCompilation",
        "SubmitTraining",
        "WatchTraining",
        "TearDown",
        "PublishArtifacts",
        "WaitForArtifacts",
        "Notify",
    ]


def test_every_change_of_a_pods_phase_is_a_line() -> None:
    lines = [line for line in followed("succeeded") if "-training-1-1-" in line]

    assert [line.split("q9d4w ")[1] for line in lines] == [
        "Pending, on node-1",
        "Running, on node-1",
        "Succeeded, on node-1, exit code 0",
    ]


def test_about_every_tenth_step_is_a_line_with_loss_and_speed() -> None:
    lines = [line for line in followed("succeeded") if "] step " in line]

    assert len(lines) == 21
    assert "step 1/200: loss 9.221, 92.0 sequences/s" in lines[0]
    assert "step 200/200: loss 6.326" in lines[-1]


def test_a_very_long_training_does_not_flood_the_log() -> None:
    run = recorded("succeeded")
    line = run.lines[0]
    steps = tuple(replace(line, step=step) for step in range(1, 28_126))

    news = list(PlainView().new_lines(replace(after(run, 70), steps=steps, total_steps=28_125)))

    assert 150 < sum("step " in line for line in news) < 250


def test_a_failed_pods_last_lines_are_printed_unchanged_at_the_end() -> None:
    lines = followed("worker_failed")

    assert any("exit code 137" in line for line in lines)
    assert lines[-1].endswith("[bold]gone[/bold] 137")


TORCHRUNS_REPORT = [
    "E1121 10:00 17 torch/distributed/elastic/multiprocessing/api.py:874] failed (exitcode: 1) local_rank: 0",
    *(f"[{rank}]: exitcode 143" for rank in range(32)),
]


def with_failed_pod(snapshot: RunState, **changes: Any) -> RunState:
    """The run when its first training pod has failed and the other one, too."""
    pods = [pod for pod in snapshot.pods if pod.stage == "training"]
    return replace(snapshot, pods=tuple(replace(pod, phase="Failed", **changes) for pod in pods))


def test_a_failed_pod_is_one_line_with_its_error_whatever_its_message() -> None:
    message = "\n".join(["step 1", "Traceback (most recent call last):", "ValueError: no column", *TORCHRUNS_REPORT])
    snapshot = with_failed_pod(after(recorded("succeeded"), 75), message=message, exit_code=1)

    lines = [*(view := PlainView()).new_lines(snapshot), *view.held_lines()]

    failed = [line.split("Failed")[1] for line in lines if "Failed" in line]
    assert failed == [f", on node-{index}, exit code 1, ValueError: no column" for index in (0, 1)]
    assert all("\n" not in line for line in lines)


def test_torchruns_report_does_not_push_the_programs_error_out_of_the_last_lines() -> None:
    snapshot = with_failed_pod(after(recorded("worker_failed"), 60))
    kept = {snapshot.pods[0].name: ["ValueError: no column", *TORCHRUNS_REPORT]}
    ended = replace(snapshot, status=RunStatus.FAILED, ended_at=snapshot.observed_at, last_lines=kept)

    lines = list(PlainView().new_lines(ended))

    assert [line.split("]  ")[1].strip() for line in lines[-2:]] == ["ValueError: no column", "(report of torchrun)"]
    assert "ValueError: no column" in drawn(ended)


def test_the_last_step_of_a_job_that_failed_is_printed_when_its_pods_have_ended_and_not_with_the_run() -> None:
    run, view = recorded("succeeded"), PlainView()
    training = after(run, 75)
    steps = tuple(step for step in training.steps if step.step <= 17)
    failed = replace(with_failed_pod(training, finished_at=training.observed_at), steps=steps, total_steps=200)
    assert not failed.ended_at

    lines = [*view.new_lines(replace(training, steps=steps, total_steps=200)), *view.new_lines(failed)]
    printed = [*lines, *view.held_lines()]

    assert [line.split("] ")[1].split(":")[0] for line in printed if "] step " in line][-1] == "step 17/200"
    ended = replace(failed, status=RunStatus.FAILED, ended_at=training.observed_at + timedelta(minutes=9))
    assert not any("] step " in line for line in view.new_lines(ended))


def test_nothing_is_printed_before_the_start_of_the_run_is_known() -> None:
    run, view = recorded("succeeded"), PlainView()
    known = after(run, 75)
    unknown = replace(known, started_at=None, states=(), state=None)

    assert list(view.new_lines(unknown)) == []
    lines = [*view.new_lines(known), *view.held_lines()]

    names = [line.split("] ")[1] for line in lines]
    assert names.index("state SubmitTraining") < names.index("step 1/200: loss 9.221, 92.0 sequences/s")
    assert names[0] == "state ValidateRun"


def test_a_fault_of_the_observation_is_printed_when_it_begins_and_ends() -> None:
    run, view = recorded("succeeded"), PlainView()
    quiet = after(run, 1)
    list(view.new_lines(quiet))
    list(view.held_lines())

    lines = [
        line for trouble in ("no answer", "no answer", None) for line in view.new_lines(replace(quiet, trouble=trouble))
    ]

    assert [line.split("] ")[1] for line in lines] == ["no answer", "observing goes on"]


def test_following_ends_even_if_the_observer_never_sees_the_end() -> None:
    frozen = after(recorded("succeeded"), 30)

    class Frozen:
        def snapshot(self) -> RunState:
            return frozen

    follow(Frozen(), Console(file=io.StringIO()), lambda: True, pause=lambda: None)


def test_the_picture_shows_states_pods_and_progress() -> None:
    picture = drawn(after(recorded("succeeded"), 87.2))

    assert "demo-3f2a9c1b4d5e  Training  1:27" in picture
    assert "● WatchTraining" in picture
    assert "✓ EnsureCapacity" in picture
    assert "training-1-0-k7x2p    node-0  Running" in picture
    assert "85/200 steps" in picture
    assert " left" in picture


def with_restart(seconds: float) -> RunState:
    now = after(recorded("succeeded"), seconds)
    began_again = now.observed_at - timedelta(seconds=20)
    restart = Restart(
        stage="training", attempt=1, at=began_again, error="WorkerFailed", message="it failed", last_step=41
    )
    saved = CheckpointReport(step=40, num_bytes=3 << 30, saved_at=now.observed_at - timedelta(seconds=5))
    return replace(now, restarts=(restart,), checkpoints=(saved,), avoided_nodes=("node-1",))


@pytest.mark.parametrize("width", [40, 50, 60, 80, 120])
@pytest.mark.parametrize("seconds", [75, 90, 1000])
def test_the_facts_of_a_run_are_whole_on_a_narrow_terminal(width: int, seconds: float) -> None:
    now = with_restart(seconds)
    lines = drawn(now, width=width).splitlines()
    assert max(len(line) for line in lines) <= width
    picture = "\n".join(line.strip() for line in lines)
    step = now.steps[-1]
    assert f"{step.step}/200 steps" in picture
    assert f"loss {step.loss:.3f}" in picture
    assert "sequences/s" in picture
    words = " ".join(picture.split())
    assert "checkpoint of step 40, " in words
    assert " old, 3.0 GiB" in words
    assert "1 restart, after WorkerFailed at step 41" in words
    assert "avoids node-1" in words
    assert "✓ EnsureCapacity" in picture
    assert "training-1-0-k7x2p" in picture
    assert any(line.split()[:1] == ["pod"] and "phase" in line.split() for line in lines)


@pytest.mark.parametrize("height", [24, 40])
def test_a_narrow_picture_fits_the_terminals_height(height: int) -> None:
    for seconds in range(0, 131, 10):
        assert len(drawn(with_restart(seconds), width=40, height=height).splitlines()) <= height


MIB, GIB = 1024**2, 1024**3


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (StagingReport(done_bytes=0, total_bytes=None, files=0, bytes_per_second=0), "staging 0 B, 0 B/s"),
        (
            StagingReport(done_bytes=GIB * 6 // 5, total_bytes=48 * GIB, files=9, bytes_per_second=410 * MIB),
            "staging 1.2 of 48.0 GiB, 410.0 MiB/s, 1 min 57 s left",
        ),
        (
            StagingReport(done_bytes=3 * MIB, total_bytes=None, files=9, bytes_per_second=2 * 1024),
            "staging 3.0 MiB, 2.0 KiB/s",
        ),
        (
            StagingReport(done_bytes=9, total_bytes=9, files=1, bytes_per_second=3),
            "staging 9 of 9 B, 3 B/s",
        ),
    ],
)
def test_staging_is_printed_in_readable_units(report: StagingReport, line: str) -> None:
    assert staging_line(report) == line
    staging = replace(after(recorded("succeeded"), 30), staging=report)
    assert line in drawn(staging)
    assert any(told.endswith(line) for told in PlainView().new_lines(staging))


def test_a_long_staging_is_printed_every_half_minute() -> None:
    view, start = PlainView(), after(recorded("succeeded"), 0)
    report = StagingReport(done_bytes=1, total_bytes=9, files=1, bytes_per_second=3)
    told = []
    for seconds in range(0, 91, 5):
        now = replace(start, observed_at=start.observed_at + timedelta(seconds=seconds), staging=report)
        told += [seconds for line in view.new_lines(now) if "staging" in line]
    assert told == [0, 30, 60, 90]


def test_the_picture_fits_a_small_terminal() -> None:
    run = recorded("succeeded")

    for seconds in range(0, 131, 5):
        picture = drawn(after(run, seconds), width=80, height=24)
        assert len(picture.splitlines()) <= 24
        assert max(len(line) for line in picture.splitlines()) <= 80


def with_log(num_lines: int, *further: str) -> RunState:
    lines = (*(f"line {number}" for number in range(num_lines)), *further)
    return replace(after(recorded("succeeded"), 75), log_tail=("demo-3f2a9c1b4d5e-training-1-0-x2b7k", lines))


def test_the_picture_of_a_run_has_the_newest_lines_of_its_log() -> None:
    picture = drawn(with_log(20)).splitlines()

    begin = picture.index(next(line for line in picture if "log of training-1-0-x2b7k" in line))
    assert [line.strip() for line in picture[begin + 1 :]] == [f"line {number}" for number in range(14, 20)]


@pytest.mark.parametrize("height", [18, 24, 30, 40])
def test_the_log_takes_no_more_than_the_terminal_has(height: int) -> None:
    assert len(drawn(with_log(20), height=height).splitlines()) <= height


def test_a_progress_bar_and_colours_of_the_log_are_shown_as_a_terminal_does() -> None:
    picture = drawn(with_log(0, " 10%|#  \r 20%|## \r 30%|###\r", "\x1b[31mred\x1b[0m \x1b[2Jwords"))

    assert ("30%|###" in picture, "20%" in picture, "red words" in picture, "[2J" in picture) == (
        True,
        False,
        True,
        False,
    )


def test_the_picture_of_a_run_says_what_it_costs() -> None:
    cost = Cost(usd=12.5, node_hours=0.6, region="us-west-2")
    assert "about 12.50 USD at on-demand prices" in drawn(replace(after(recorded("succeeded"), 75), cost=cost))


def test_the_picture_of_a_failed_run_ends_with_the_first_failed_pods_last_lines() -> None:
    run = recorded("worker_failed")

    picture = drawn(snapshot_at(run, run.end))

    assert "✗ RunFailed" in picture
    assert "last lines of demo-9b0e77d2c41a-training-1-1-q9d4w" in picture
    assert "[bold]gone[/bold] 137" in picture


def test_the_live_view_on_a_terminal_leaves_the_last_picture() -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=100, height=40, color_system=None)
    observer = ReplayedObserver(recorded("succeeded"), polls=12)

    follow(observer, console, observer.is_finished, pause=lambda: None)

    assert "Succeeded" in console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_summary_of_a_success(is_terminal: bool) -> None:
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=120, color_system=None)

    summarize(recorded("succeeded").record(), console, report=Path("out/demo/report.html"))

    text = console.file.getvalue()  # type: ignore[attr-defined]
    for fact in ("Run succeeded", "2 min 11 s", "9.221 → 6.326", "118.6 sequences/s", "out/demo/report.html"):
        assert fact in text


def test_the_summary_of_a_failure_says_what_to_do() -> None:
    console = Console(file=io.StringIO(), width=60)

    summarize(recorded("worker_failed").record(), console)

    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "WorkerFailed" in text
    assert "after step 61." in text
    assert WorkerFailed().what_to_do in text


def test_the_summary_of_a_run_that_goes_on_says_so() -> None:
    console = Console(file=io.StringIO(), width=100)
    summarize(recorded("aborted").record().model_copy(update={"status": RunStatus.RUNNING, "error": None}), console)
    assert console.file.getvalue().splitlines()[1] == "Run goes on: demo-aaaaaaaaaaaa"  # type: ignore[attr-defined]


def test_the_summary_names_the_place_in_the_command_that_it_advises() -> None:
    console = Console(file=io.StringIO(), width=200)
    record = recorded("worker_failed").record()
    assert record.error is not None
    error = replace(record.error, what_to_do="Continue it: `trainflow resume RUN`.")
    summarize(record.model_copy(update={"error": error}), console, words=("--place", "prod"))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert f"Continue it: `trainflow resume {record.run_id} --place prod`." in text


def test_the_summary_of_an_aborted_run_is_short() -> None:
    console = Console(file=io.StringIO(), width=60)

    summarize(recorded("aborted").record(), console)

    assert console.file.getvalue().splitlines()[1] == "Run stopped: demo-aaaaaaaaaaaa"  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "first_step", "expected"),
    [
        ({"max_steps": 200}, 1, 200),
        ({"max-steps": "200"}, 1, 200),
        ({"max_steps": 200, "steps_this_run": 50}, 1, 50),
        ({"max_steps": 200, "steps_this_run": 50}, 101, 150),
        ({"max_steps": 120, "steps_this_run": 50}, 101, 120),
        ({"max_steps": -1, "steps_this_run": 50}, None, 50),
        ({"max_steps": "many"}, 1, None),
        ({"max_train_steps": 30, "warmup_steps": 5}, 1, 30),
        ({"training.steps": 60, "logging_steps": 5}, 1, 60),
        ({"iterations": 500}, 1, 500),
        ({"save_steps": 10, "gradient_accumulation_steps": 4, "epochs": 3}, 1, None),
        ({}, 1, None),
    ],
)
def test_the_last_step_is_known_from_the_specs_arguments(
    arguments: dict[str, object], first_step: int | None, expected: int | None
) -> None:
    assert total_steps({"workload": {"arguments": arguments}}, first_step) == expected


@pytest.mark.parametrize("spec", sorted(Path("examples").glob("*/spec.yaml")))
def test_the_last_step_of_every_example_is_known(spec: Path) -> None:
    document = yaml.safe_load(spec.read_text())
    assert total_steps(document, 1) in document["workload"]["arguments"].values()


def test_remaining_time_follows_from_the_rate_of_the_latest_steps() -> None:
    run = recorded("succeeded")
    snapshot = after(run, 92.6)

    assert snapshot.steps[-1].step == 101
    assert snapshot.seconds_left == pytest.approx(30.5, abs=2)
    assert replace(snapshot, total_steps=None).seconds_left is None
    assert replace(snapshot, status=RunStatus.FAILED).seconds_left is None
    assert replace(snapshot, steps=snapshot.steps[:1]).seconds_left is None


def test_the_times_of_the_plain_lines_never_decrease() -> None:
    """The end is known a few frames late, and what those frames told was stamped later than the end."""
    run, view = recorded("succeeded"), PlainView()
    ended = after(run, 131)
    assert ended.started_at is not None
    late = replace(ended, status=RunStatus.RUNNING, ended_at=None, observed_at=run.end + timedelta(seconds=20))
    ended = replace(ended, trouble="said after the end")
    lines = [line for snapshot in (after(run, 70), late, ended) for line in view.new_lines(snapshot)]
    stamps = [line[:9] for line in lines]
    assert lines[-1].endswith("said after the end")
    assert stamps == sorted(stamps)
    assert stamps[0] < stamps[-1]


def replayed(run: RecordedRun, *, late_seconds: int) -> list[str]:
    """The lines of a run whose executions are read later than its pods and its log."""
    view, lines = PlainView(), list[str]()
    moments = [after(run, seconds) for seconds in range(140)]
    for snapshot, known in zip(moments, [*[moments[0]] * late_seconds, *moments], strict=False):
        ended = known.ended_at is not None
        lines += view.new_lines(snapshot if ended else replace(snapshot, states=known.states, ended_at=None))
    return [*lines, *view.held_lines()]


def test_states_that_are_known_late_are_printed_in_the_order_of_their_times() -> None:
    run = recorded("succeeded")

    lines = replayed(run, late_seconds=4)

    stamps, events = [line[:9] for line in lines], [line[10:] for line in lines]
    assert stamps == sorted(stamps)
    assert events.index("state WatchTraining") < next(
        place for place, event in enumerate(events) if "-training-1-0-" in event and "Running" in event
    )
    states = {visit.name: visit.entered_at for visit in reversed(after(run, 1000).states)}
    entered = {
        f"state {name}": clock((at - run.history.events[0]["timestamp"]).total_seconds()) for name, at in states.items()
    }
    assert [line for line in lines if line[10:] in entered] == [
        f"[{entered[event]:>7}] {event}" for event in events if event in entered
    ]


def test_the_clock_stays_where_a_state_is_known_very_late() -> None:
    run = recorded("succeeded")

    late, lines = replayed(run, late_seconds=8), replayed(run, late_seconds=0)

    stamps = [line[:9] for line in late]
    assert stamps == sorted(stamps)
    assert sorted(line[10:].split(", 0:")[0] for line in late) == sorted(line[10:].split(", 0:")[0] for line in lines)


def test_nodes_that_a_run_begins_and_ceases_to_avoid_are_lines() -> None:
    now = after(recorded("succeeded"), 90)
    view = PlainView()
    lines: list[str] = []
    for avoided in ((), ("n1",), ("n1",), ("n1", "n2"), ("n2",), ()):
        lines += view.new_lines(replace(now, avoided_nodes=avoided))
    told = [line.split("] ")[1] for line in [*lines, *view.held_lines()] if "n1" in line or "n2" in line]
    assert told == [
        "the run avoids n1 from now on",
        "the run avoids n1, n2 from now on",
        "the run uses n1 again: there is no room for other nodes",
        "the run uses n2 again: there is no room for other nodes",
    ]
    view = PlainView()
    list(view.new_lines(replace(now, avoided_nodes=("n1", "n2"))))
    refuted = [*view.new_lines(replace(now, test_is_refuted=True)), *view.held_lines()]
    assert any(line.endswith("the run uses n1, n2 again: the test that named them is refuted") for line in refuted)
    assert "avoids n1, n2" in drawn(replace(now, avoided_nodes=("n1", "n2")))


def test_checkpoints_and_restarts_are_lines_and_stand_in_the_picture() -> None:
    run = recorded("succeeded")
    now = after(run, 90)
    start = now.started_at
    assert start is not None
    saved = [
        CheckpointReport(step=40, num_bytes=None, saved_at=start + timedelta(seconds=70)),
        CheckpointReport(step=80, num_bytes=3 << 30, saved_at=start + timedelta(seconds=85)),
    ]
    trace = "Traceback:\nPod 'x' ended with exit code 137."
    restart = Restart(
        stage="training",
        attempt=1,
        at=start + timedelta(seconds=75),
        error="WorkerFailed",
        message=trace,
        last_step=41,
    )
    view = PlainView()
    early = replace(after(run, 71), checkpoints=tuple(saved[:1]))
    lines = [*view.new_lines(early), *view.new_lines(replace(now, checkpoints=tuple(saved), restarts=(restart,)))]
    told = [line for line in [*lines, *view.held_lines()] if "checkpoint" in line or "restart" in line]
    assert told == [
        "[   1:10] checkpoint of step 40",
        wording(
            "follow.checkpoints_and_restarts_are_lines_and_stand_in_the_picture", "15", "WorkerFailed", "'x'", "137"
        ),
        "[   1:25] checkpoint of step 80, 3.0 GiB",
    ]
    picture = drawn(replace(now, checkpoints=tuple(saved), restarts=(restart,)))
    assert "checkpoint of step 80, 5.0 s old, 3.0 GiB · 1 restart, after WorkerFailed at step 41" in picture
    assert "left, until 09:32 UTC" in picture
    ended = replace(after(run, 1000), checkpoints=tuple(saved))
    assert ended.checkpoint_age_seconds == pytest.approx(45.8, abs=0.1)


def test_the_first_step_is_a_line_where_a_program_counts_from_zero() -> None:
    run = after(recorded("succeeded"), 90)
    view = PlainView()
    first = replace(run, steps=(replace(run.steps[0], step=0), *run.steps[1:3]))
    lines = [line for line in [*view.new_lines(first), *view.held_lines()] if "step " in line]
    assert ["step 0" in line for line in lines] == [True]


def test_steps_that_a_restarted_job_repeats_are_lines_again_and_those_of_the_job_before_are_not() -> None:
    before = after(recorded("succeeded"), 90)
    newest, start = before.steps[-1], before.steps[0]
    failed_at = newest.logged_at + timedelta(seconds=2)
    restart = Restart(stage="training", attempt=1, at=failed_at, error="WorkerFailed", message="it failed")
    repeated = [replace(step, logged_at=failed_at + timedelta(seconds=step.step)) for step in before.steps[:25]]
    view = PlainView()
    shown = [*view.new_lines(before), *view.held_lines()]
    assert any(f"step {newest.step // 10 * 10:,}" in line for line in shown)
    started = replace(before, steps=(repeated[0], *before.steps[1:]), restarts=(restart,))
    again = [*view.new_lines(started), *view.held_lines()]
    assert [line.partition("step ")[2].partition("/")[0] for line in again if "step " in line] == [f"{start.step}"]
    later = replace(started, steps=(*repeated, *before.steps[25:]))
    lines = [*view.new_lines(later), *view.held_lines()]
    assert [line.partition("step ")[2].partition("/")[0] for line in lines if "step " in line] == ["10", "20"]


def test_the_time_of_the_end_has_its_date_where_it_is_another_day() -> None:
    now = after(recorded("succeeded"), 90)
    assert at_time(now.observed_at + timedelta(minutes=5), now) == "09:36 UTC"
    assert at_time(now.observed_at + timedelta(days=1), now) == "2026-11-22 09:31 UTC"


def test_what_a_program_does_not_say_is_not_shown() -> None:
    run = recorded("succeeded")
    snapshot = after(run, 1000)
    bare = replace(snapshot.steps[-1], loss=None, throughput=None, learning_rate=None, epoch=None)
    told = replace(bare, loss=2.5, metrics={"tokens_per_second": 1234.0})
    said = [
        list(PlainView().new_lines(replace(snapshot, steps=(step,), warnings=("no line matches",))))
        for step in (bare, told)
    ]
    (nothing, more) = ([line.split("] ")[1] for line in lines if " step " in line] for lines in said)
    assert [line.rpartition("/")[2] for line in nothing] == [str(snapshot.total_steps)]
    assert more[0].endswith(": loss 2.5, 1,234 tokens/s")
    picture = drawn(replace(snapshot, steps=(bare,), warnings=("no line matches",)))
    assert "loss" not in picture
    assert "sequences/s" not in picture
    assert "warning: no line matches" in picture
    assert sum("warning: no line matches" in line for line in said[0]) == 1


def test_a_warning_that_is_over_is_taken_back_once_while_the_run_lasts() -> None:
    snapshot, view = after(recorded("succeeded"), 90), PlainView()
    said = [
        [line.split("] ")[1] for line in view.new_lines(replace(snapshot, warnings=warnings)) if "no step" in line]
        for warnings in (
            (),
            ("There is no step. Look.",),
            ("There is no step. Look.",),
            (),
            (),
            ("1 no step",),
            ("2 no step",),
        )
    ]
    assert said[:5] == [[], ["warning: There is no step. Look."], [], ["no longer: There is no step."], []]
    assert said[5:] == [["warning: 1 no step"], ["warning: 2 no step"]], "a count that grows"
