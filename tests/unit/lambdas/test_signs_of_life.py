"""Lines that show that a program goes on, and lines that a hanging program may print for ever."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lambdas.logic.signs_of_life import REMEMBERED, RecentLines, compared, shows_life
from lambdas.logic.step_metrics import advanced, next_batch
from lambdas.logic.watching import require_progress
from tests.fakes.runs import STARTED_AT, run_of
from trainflow.errors import JobStalled
from trainflow.observed.job import JobStatus
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import JobPhase, JobRef, LogPosition, MetricsCursor, Stage

GOES_ON = {
    "counter": ("iter 101: loss 2.31, time 50ms", "iter 102: loss 2.31, time 50ms"),
    "loss": ("loss 2.31", "loss 2.30"),
    "thousands": ("step 1,200 of 9,000", "step 1,300 of 9,000"),
    "bar": (" 45%|####5    | 45/100 [00:05<00:06, 9.0it/s]", " 46%|####6    | 46/100 [00:05<00:06, 9.0it/s]"),
    "bar that is written over": ("1/9\r2/9\r3/9", "1/9\r2/9\r3/9\r4/9"),
    "text": ("To be, or not to be", "that is the question"),
    "documents": ("tokenized 12000 documents in 30 s", "tokenized 13000 documents in 33 s"),
    "files": ("Downloading shard 3/30", "Downloading shard 4/30"),
    "waiting time beside work": ("epoch 3 iter 31 | wait 0.2s | loss 2.0", "epoch 3 iter 32 | wait 0.2s | loss 2.0"),
    "another number format": ("iter=31k loss=2.0", "iter=32k loss=2.0"),
    "words for numbers": ("finished block A", "finished block B"),
    "evaluation": ("val batch 5 acc 0.4", "val batch 6 acc 0.4"),
    "colours": ("\x1b[32mround 5\x1b[0m", "\x1b[32mround 6\x1b[0m"),
    "changed files": ('{"trainflow_alive": {"changed_files": 1}}',) * 2,
}
ONLY_WAITS = {
    "the same": ("waiting for peer...", "waiting for peer..."),
    "elapsed time": ("waiting for peer 10.0.0.3 (35 s)", "waiting for peer 10.0.0.3 (40 s)"),
    "bare seconds": ("waiting for peer: 35", "waiting for peer: 40"),
    "time of day": ("[2026-11-21 12:00:05,123] queue is full", "[2026-11-21 12:00:35,625] queue is full"),
    "seconds since 1970": ("1763726405.12 queue is full", "1763726435.99 queue is full"),
    "syslog": ("Nov 21 12:00:05 queue is full", "Nov 22 12:00:05 queue is full"),
    "heartbeat with a step": (
        "heartbeat 17: rank 0 phase=training step=183 rss=12.3GiB",
        "heartbeat 18: rank 0 phase=training step=183 rss=12.4GiB",
    ),
    "socket": (
        "[rank0]:[W1121 12:00:05.123 socket.cpp:752] [c10d] The client socket cannot connect to [node-1]:29500",
        "[rank0]:[W1121 12:01:05.441 socket.cpp:752] [c10d] The client socket cannot connect to [node-1]:29500",
    ),
    "retries": ("connection refused, retry 7 of 1000", "connection refused, retry 8 of 1000"),
    "still": ("still running, 70 polls", "still running, 71 polls"),
    "monitor": ("gpu 0: 71 C, 312.4 W, 39822 MiB", "gpu 0: 68 C, 98.1 W, 39823 MiB"),
    "bar whose clock runs": (
        " 45%|####5 | 45/100 [10:05<12:00, 6.0s/it]",
        " 45%|####5 | 45/100 [10:15<12:12, 6.1s/it]",
    ),
    "spinner": ("/ 38.464 MB of 38.464 MB uploaded", "/ 38.464 MB of 38.464 MB uploaded"),
    "addresses": ("worker <object at 0x7f01a2> busy", "worker <object at 0x7f09ff> busy"),
    "stack": ('  File "train.py", line 5 in forward', '  File "train.py", line 6 in backward'),
    "blank": ("", " "),
}
NOW = STARTED_AT + timedelta(hours=1)
LIMITS = run_of().spec.limits
JOB = JobRef(name="bert-training-1", stage=Stage.TRAINING, attempt=1, num_nodes=2)
STATUS = JobStatus(phase=JobPhase.RUNNING, started_at=STARTED_AT)


@pytest.mark.parametrize("lines", GOES_ON.values(), ids=GOES_ON)
def test_a_line_that_differs_in_its_work_is_a_sign_of_life(lines: tuple[str, str]) -> None:
    recent = RecentLines()
    assert [recent.add(line) for line in lines] == [True, True]


@pytest.mark.parametrize("lines", ONLY_WAITS.values(), ids=ONLY_WAITS)
def test_a_line_that_differs_in_clocks_and_measurements_only_is_no_sign(lines: tuple[str, str]) -> None:
    recent = RecentLines()
    recent.add(lines[0])
    assert not recent.add(lines[1])


def test_a_monitor_that_prints_in_turn_is_remembered_across_polls() -> None:
    turn = [f"device {letter} is busy" for letter in "abcdefghijklmnopqrst"]
    recent = RecentLines()
    assert all(recent.add(line) for line in turn)
    recent = RecentLines(recent.known)
    assert not any(recent.add(line) for line in turn)


@given(st.lists(st.text(max_size=80), max_size=60))
def test_any_lines_are_remembered_in_bounded_space(lines: list[str]) -> None:
    recent = RecentLines()
    for line in lines:
        recent.add(line)
        assert compared(line) is None or not recent.add(line)
    assert len(recent.known) <= REMEMBERED


def polled(lines: list[str], before: MetricsCursor, *, minute: float, pod: str = "pod-0") -> MetricsCursor:
    """The cursor after a poll that has read these lines."""
    now = NOW + timedelta(minutes=minute)
    batch = next_batch([LogLine(now, line) for line in lines], before)
    return advanced(before, batch, log=LogPosition(pod=pod, since=now, num_lines=1, first_line=1), now=now)


def require(cursor: MetricsCursor, *, minute: float) -> None:
    require_progress(JOB, STATUS, cursor, limits=LIMITS, now=NOW + timedelta(minutes=minute))


def test_another_pods_log_shows_life_if_its_newest_lines_differ() -> None:
    def tail(*texts: str) -> list[LogLine]:
        return [LogLine(NOW + timedelta(minutes=number), text) for number, text in enumerate(texts)]

    beats = [f"rank 7 is alive, {number} min" for number in range(40)]
    assert not shows_life(tail(*beats), since=NOW - timedelta(hours=1))
    assert shows_life(tail(*beats, "iteration 5"), since=NOW)
    assert not shows_life(tail(*beats, "iteration 5"), since=NOW + timedelta(hours=1))
    assert shows_life(tail(*(f"iteration {number}" for number in range(40))), since=NOW)
    assert not shows_life([], since=NOW)


STEP = '{"step": 40, "loss": 2.5}'


def test_a_job_whose_steps_are_not_read_any_more_lives_while_its_lines_change() -> None:
    cursor = polled([STEP], MetricsCursor(), minute=0)
    for minute in range(1, 200):
        cursor = polled([f"at {minute}k of 9k: 2.5"], cursor, minute=minute)
        require(cursor, minute=minute)
    assert cursor.last_step == 40
    with pytest.raises(JobStalled, match=r"step after 40 .*60 minutes.*differs"):
        require(cursor, minute=199 + 61)


@pytest.mark.parametrize("before", [[STEP], ["training begins"]], ids=["with a step", "without a step"])
def test_a_job_that_prints_a_heartbeat_for_ever_is_stalled(before: list[str]) -> None:
    cursor = polled(before, MetricsCursor(), minute=0)
    for minute in range(1, 60):
        cursor = polled([f"rank 0 is alive, {minute} min"], cursor, minute=minute)
    require(cursor, minute=60)
    with pytest.raises(JobStalled, match="for 60 minutes"):
        require(polled(["rank 0 is alive, 62 min"], cursor, minute=62), minute=62)


def test_a_silent_job_is_stalled_at_the_same_time_as_ever() -> None:
    cursor = polled([STEP], MetricsCursor(), minute=0)
    require(cursor, minute=60)
    with pytest.raises(JobStalled):
        require(cursor, minute=60.1)


def test_the_lines_of_a_restarted_program_are_compared_only_with_its_own() -> None:
    cursor = polled(["loading data"], MetricsCursor(), minute=0)
    cursor = polled(["loading data"], cursor, minute=30, pod="pod-1")
    assert cursor.changed_at == NOW + timedelta(minutes=30)
