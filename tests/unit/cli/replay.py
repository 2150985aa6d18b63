"""Replays a recorded run as an observer would have seen it, moment by moment."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from recorded_runs import RecordedRun

from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState
from trainflow.record.history import ExecutionHistory
from trainflow.record.run_states import state_of_history
from trainflow.spec.total_steps import total_steps


class ReplayedObserver:
    """Returns one snapshot after another, evenly spaced over the run; the last one shows its end."""

    def __init__(self, run: RecordedRun, *, polls: int) -> None:
        self._run = run
        self._polls = polls
        self.num_taken = 0

    def snapshot(self) -> RunState:
        self.num_taken = min(self.num_taken + 1, self._polls)
        start = self._run.history.events[0]["timestamp"]
        return snapshot_at(self._run, start + (self._run.end - start) * self.num_taken / self._polls)

    def is_finished(self) -> bool:
        return self.num_taken >= self._polls - 1


def snapshot_at(run: RecordedRun, now: datetime) -> RunState:
    """What an observer knew of the run at that time."""
    history, *children = (_until(one, now) for one in (run.history, *run.children))
    known = [history, *(child for child in children if child.events)]
    pods = tuple(pod for one in run.pods if (pod := _pod_at(one, now)) is not None)
    return replace(
        state_of_history(run.run_id, history, known[1:], now=now),
        pods=pods,
        steps=tuple(line for line in run.lines if line.logged_at <= now),
        total_steps=total_steps(history.input() or {}, 1),
        last_lines={pod.name: _last_lines(pod) for pod in pods if pod.phase == "Failed"},
    )


def _until(history: ExecutionHistory, now: datetime) -> ExecutionHistory:
    return replace(history, events=tuple(event for event in history.events if event["timestamp"] <= now))


def _pod_at(pod: Pod, now: datetime) -> Pod | None:
    assert pod.created_at and pod.started_at and pod.finished_at
    if now < pod.created_at:
        return None
    if now < pod.started_at:
        return replace(pod, phase="Pending", started_at=None, finished_at=None, exit_code=None, message=None)
    if now < pod.finished_at + timedelta(milliseconds=500):
        return replace(pod, phase="Running", finished_at=None, exit_code=None, message=None)
    return pod


def _last_lines(pod: Pod) -> Sequence[str]:
    return ("Traceback (most recent call last):", '  File "trainer/pretrain.py"', f"[bold]gone[/bold] {pod.exit_code}")
