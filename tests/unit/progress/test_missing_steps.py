"""A log without steps is a warning in time, says what was seen, and is none for programs that are no training."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.logic.step_metrics import advanced, next_batch
from trainflow.client.observe.training_log import TrainingLog
from trainflow.progress.missing_steps import missing_at_end, missing_steps_warning
from trainflow.protocol.stacks import Group, NodeStacks, stacks_line
from trainflow.spec.progress import Format
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import LinesSinceStep, LogPosition, MetricsCursor

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
SPEC: Mapping[str, Any] = {
    "version": 1,
    "name": "x",
    "workload": {"command": ["train"], "image": "x:1"},
    "compute": {"instance_type": "c7i.xlarge", "num_nodes": 1},
}


def log_of(*texts: str, seconds: float = 1.0, begin: float = 0.0) -> list[LogLine]:
    """Lines so many seconds apart."""
    return [LogLine(NOW + timedelta(seconds=begin + number * seconds), text) for number, text in enumerate(texts)]


def step(number: int) -> str:
    return json.dumps({"step": number, "loss": 2.5})


def odd(number: int) -> str:
    return f"at {number}k of 9k: loss=2.5"


def polled(
    lines: Sequence[LogLine], cuts: Sequence[int] = (), *, before: MetricsCursor | None = None, pod: str = "pod-0"
) -> MetricsCursor:
    """The cursor of polls that read a log in parts, each at the time of its last line."""
    cursor, begin = before or MetricsCursor(), 0
    for end in [*sorted(min(cut, len(lines)) for cut in cuts), len(lines)]:
        now = lines[end - 1].logged_at if end else NOW
        is_new = cursor.log is None or cursor.log.pod != pod
        batch = next_batch(lines[begin:end], cursor, is_new_log=is_new)
        cursor = advanced(cursor, batch, log=LogPosition(pod=pod, since=now, num_lines=1, first_line=1), now=now)
        cursor = MetricsCursor.model_validate_json(json.dumps(cursor.model_dump(mode="json"), allow_nan=False))
        begin = end
    return cursor


def warned(cursor: MetricsCursor, progress: Any = "auto") -> str | None:
    return missing_steps_warning(progress, cursor.since_step.missing)


def test_two_minutes_of_log_without_a_step_are_a_warning_that_shows_the_lines() -> None:
    lines = log_of("loading", *map(odd, range(30)), seconds=5)
    assert warned(polled(lines[:24])) is None
    said = warned(polled(lines))
    assert said is not None
    assert said.startswith("No step was found in the first 24 lines of rank 0's log. The last lines with a number: ")
    assert "'at 20k of 9k: loss=2.5', 'at 21k of 9k: loss=2.5', 'at 22k of 9k: loss=2.5'." in said
    assert "the spec's field progress, or set progress: none" in said


def test_a_warning_proposes_the_pattern_that_reads_the_lines() -> None:
    said = warned(polled(log_of(*(f"tick {number} of it's 9000" for number in range(200)))))
    assert said is not None
    assert "put progress: {pattern: 'tick\\s+(?P<step>\\d[\\d,]*)'} into the spec." in said


def test_a_program_that_prints_little_is_warned_about_when_the_time_has_passed() -> None:
    cursor = polled(log_of("loading 5 files"))
    batch = next_batch([], cursor)
    early = advanced(cursor, batch, log=cursor.log, now=NOW + timedelta(seconds=119))
    late = advanced(cursor, batch, log=cursor.log, now=NOW + timedelta(seconds=120))
    assert warned(early) is None
    assert str(warned(late)).startswith("No step was found in the first line of rank 0's log. The last line with")


def test_lines_that_stop_matching_are_a_warning_that_goes_when_steps_come_again() -> None:
    lines = log_of(*map(step, range(40)), *map(odd, range(1, 200)))
    cursor = polled(lines)
    said = warned(cursor)
    assert said is not None
    assert said.startswith(
        "No step is read from the log after step 39, although 119 lines have followed. The last lines"
    )
    assert warned(polled(log_of(step(40), begin=300), before=cursor)) is None


def test_lines_of_the_supervisor_do_not_count_as_the_programs() -> None:
    stood_still = stacks_line(NodeStacks(node=0, processes=1, seconds=61.0, groups=(Group(ranks=(0,)),)))
    lines = log_of(*map(step, range(40)), *(line for number in range(1, 200) for line in (odd(number), stood_still)))
    said = warned(polled(lines))
    assert said is not None
    assert "lines have followed. The last lines with a number: 'at " in said
    assert "trainflow" not in said
    assert "although 60 lines" in said


def test_a_pause_for_an_evaluation_is_no_warning_if_it_was_as_long_before() -> None:
    evaluation = [f"evaluated {number}" for number in range(150)]
    first = polled(log_of(*map(step, range(10)), *evaluation, step(10)))
    assert warned(first) is None, "over"
    assert warned(polled(log_of(*evaluation, begin=170), before=first)) is None


@pytest.mark.parametrize("lines", [["evaluation is over"], [f"saved {number}" for number in range(9)]])
def test_a_silence_after_a_step_is_no_warning(lines: list[str]) -> None:
    cursor = polled(log_of(*map(step, range(10))))
    cursor = polled(log_of(*lines, begin=3000), before=cursor)
    assert warned(cursor) is None
    assert warned(advanced(cursor, next_batch([], cursor), log=cursor.log, now=NOW + timedelta(hours=3))) is None


def test_a_restarted_job_has_its_own_two_minutes() -> None:
    cursor = polled(log_of(*map(step, range(10))))
    again = [f"loading {number}" for number in range(20)]
    assert warned(polled(log_of(*again, begin=900), before=cursor, pod="pod-1")) is None
    assert warned(polled(log_of(*again, begin=900, seconds=10), before=cursor, pod="pod-1")) is not None


@given(cuts=st.lists(st.integers(0, 240), max_size=6))
def test_workflow_and_client_come_to_the_same_sentence(cuts: list[int]) -> None:
    for lines in (log_of(*map(odd, range(150))), log_of(*map(step, range(40)), *map(odd, range(1, 200)))):
        log = TrainingLog(lambda: SPEC)
        for line in lines:
            log.read(line, "pod-0")
        assert log.warnings() == [warned(polled(lines, cuts))]


def at_end(*lines: str, last_step: int | None = None) -> str | None:
    since = polled(log_of(*lines), before=MetricsCursor(last_step=last_step)).since_step
    return missing_steps_warning("auto", missing_at_end(MetricsCursor(last_step=last_step, since_step=since)))


@pytest.mark.parametrize(
    "lines",
    [
        ["Hello, world"],
        ["preparing", "wrote 5 files", "done"],
        ["Unable to locate sufficient 2 gpus to run this example. Exiting."],
        [],
    ],
)
def test_a_short_program_that_is_no_training_is_not_warned_about(lines: list[str]) -> None:
    assert at_end(*lines) is None


@pytest.mark.parametrize(
    "lines",
    [["epoch 1 of 3", "done"], ["round 1", "round 2"], ["loss=7.5"], [f"line {'x' * number}" for number in range(10)]],
)
def test_a_log_that_ends_without_a_step_is_a_warning_if_it_looks_like_a_training(lines: list[str]) -> None:
    said = at_end(*lines)
    assert said is not None
    assert f"the first {'line' if len(lines) == 1 else f'{len(lines)} lines'} of rank 0's log" in said


def test_the_lines_after_the_last_step_are_a_warning_only_if_they_look_like_steps() -> None:
    assert at_end("saving", "saved model.pt of 5 MB", "bye", last_step=40) is None
    assert at_end(*(f"file {number} saved" for number in range(50)), last_step=40) is None
    said = at_end(*map(odd, range(20)), last_step=40)
    assert said is not None
    assert "after step 40, although 20 lines have followed" in said


@pytest.mark.parametrize(
    ("progress", "begin"),
    [
        ("auto", "No step was found in the first 119 lines"),
        (Format(preset="lightning"), "progress.preset matches none of the first 119 lines"),
        (Format(pattern=r"it (?P<step>\d+)"), "progress.pattern matches none of the first 119 lines"),
        (Format(tensorboard="tb"), "progress.tensorboard has found no step by line 119 of rank 0's log."),
    ],
)
def test_each_setting_has_its_sentence(progress: Any, begin: str) -> None:
    missing = polled(log_of(*map(odd, range(1, 150)))).since_step.missing
    assert missing is not None
    said = missing_steps_warning(progress, missing.model_copy(update={"num_lines": 119}))
    assert str(said).startswith(begin)
    assert missing_steps_warning("none", missing) is None


@given(st.lists(st.text(max_size=300), max_size=30))
def test_any_lines_are_kept_in_bounded_space_and_on_one_line(texts: list[str]) -> None:
    since = polled(log_of(*texts, seconds=60)).since_step
    assert len(LinesSinceStep.model_validate_json(since.model_dump_json()).newest) <= 8
    assert all(len(line) <= 200 and line.isprintable() for line in since.newest)
