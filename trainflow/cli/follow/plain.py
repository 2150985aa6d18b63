"""A run as lines of plain text, one for each thing that happens: for files, pipes and CI."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainflow.cli.follow.staging import staging_line
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.observed.visit import Visit
from trainflow.record.last_lines import last_own_line, own_lines
from trainflow.record.pod_messages import cause
from trainflow.record.wording import clock, significant, size, speed_of
from trainflow.workflow.run import Stage

STEPS_PER_LINE = 10
"""Every tenth logged step gets a line, besides the first and the last; fewer do in a long training."""

MAX_STEP_LINES = 200
"""Largest number of lines on steps, approximately."""

STAGING_LINE_SECONDS = 30
"""Time between two lines on the progress of staging."""

SILENT_KINDS = frozenset({"Choice", "Pass", "Succeed"})
"""Types of states that take no time, which a user who waits need not see."""

NUM_LAST_LINES = 10
"""Lines of a failed pod's log that are shown."""

HOLD_SECONDS = 5.0
"""Time that a line waits for older ones: the states of an execution are known a moment later than pods and steps, with
a poll of its history that may itself lag behind."""

WHOLE_SECOND = timedelta(seconds=0.999)
"""Added to times without a fraction, as Kubernetes and metrics lines have them: the event was at some time of that
second, and mostly after the state that caused it was entered."""


@dataclass(frozen=True)
class _Line:
    text: str
    at: datetime | None = None
    """Time of the event; None for what is said about the present, which does not wait."""


class PlainView:
    """Remembers what was printed, so that each event is printed once, in the order of the events."""

    def __init__(self) -> None:
        self._waiting: list[tuple[float, str]] = []
        """Lines that wait for older ones, with their times in seconds since the start."""
        self._checkpoint_printed_at: datetime | None = None
        self._num_restarts = 0
        self._avoided: tuple[str, ...] = ()
        self._states_printed: set[str] = set()
        self._phases: dict[str, str] = {}
        self._staging_printed_at: float | None = None
        self._last_step: int | None = None
        self._logs_printed: set[str] = set()
        self._warnings_printed: set[str] = set()
        self._trouble: str | None = None
        self._printed_at = 0.0
        """Time of the newest printed line, in seconds since the start."""

    def new_lines(self, snapshot: RunState) -> Iterator[str]:
        """Lines for what has happened since the snapshot before and is not held back; all of them once a run has
        ended."""
        if snapshot.started_at is None and snapshot.trouble is None:
            return  # before the first answer of Step Functions no event has a time since the start
        present = False
        for line in (
            *self._states(snapshot),
            *self._pods(snapshot.pods),
            *self._steps(snapshot),
            *self._checkpoints(snapshot),
            *self._restarts(snapshot),
            *(_Line(text) for text in self._staging(snapshot)),
            *(_Line(text) for text in self._logs(snapshot)),
            *(_Line(text) for text in self._warnings(snapshot)),
            *(_Line(text) for text in self._troubles(snapshot.trouble)),
        ):
            present |= line.at is None
            self._waiting.append((_seconds(line.at, snapshot), line.text))
        all_of_them = present or snapshot.ended_at is not None
        yield from self._printed(until=None if all_of_them else snapshot.seconds - HOLD_SECONDS)

    def held_lines(self) -> Iterator[str]:
        """The lines that are still held back. Called after the last snapshot."""
        yield from self._printed(until=None)

    def _printed(self, *, until: float | None) -> Iterator[str]:
        """The waiting lines in the order of their times. The clock of one that is later than expected stays."""
        self._waiting.sort(key=lambda line: line[0])
        waiting, self._waiting = self._waiting, []
        for seconds, text in waiting:
            if until is not None and seconds > until:
                self._waiting.append((seconds, text))
                continue
            self._printed_at = max(self._printed_at, seconds)
            yield f"[{clock(self._printed_at):>7}] {text}"

    def _states(self, snapshot: RunState) -> Iterator[_Line]:
        """States as they are entered; the further iterations of a loop are not printed again."""
        for visit in snapshot.states:
            if visit.name not in self._states_printed and is_told(visit, snapshot):
                self._states_printed.add(visit.name)
                yield _Line(f"state {visit.name}", visit.entered_at)

    def _pods(self, pods: tuple[Pod, ...]) -> Iterator[_Line]:
        for pod in pods:
            if self._phases.get(pod.uid) != pod.phase:
                self._phases[pod.uid] = pod.phase
                yield _Line(_pod_line(pod), _within_second(_time_of_phase(pod)))

    def _checkpoints(self, snapshot: RunState) -> Iterator[_Line]:
        for saved in snapshot.checkpoints:
            if self._checkpoint_printed_at is None or saved.saved_at > self._checkpoint_printed_at:
                self._checkpoint_printed_at = saved.saved_at
                weight = f", {size(saved.num_bytes)}" if saved.num_bytes is not None else ""
                yield _Line(f"checkpoint of step {saved.step}{weight}", saved.saved_at)

    def _restarts(self, snapshot: RunState) -> Iterator[_Line]:
        for number_of, restart in enumerate(snapshot.restarts[self._num_restarts :], start=self._num_restarts + 1):
            self._num_restarts = number_of
            reason = last_own_line(restart.message)
            yield _Line(f"restart {number_of}, of {restart.stage}, after {restart.error}: {reason}", restart.at)
        before, self._avoided = self._avoided, snapshot.avoided_nodes
        if {*self._avoided} - {*before}:
            newest = snapshot.restarts[-1].at if snapshot.restarts else snapshot.observed_at
            yield _Line(f"the run avoids {', '.join(self._avoided)} from now on", newest)
        if again := [name for name in before if name not in self._avoided]:
            why = (
                "the test that named them is refuted"
                if snapshot.test_is_refuted
                else "there is no room for other nodes"
            )
            yield _Line(f"the run uses {', '.join(again)} again: {why}", snapshot.observed_at)

    def _staging(self, snapshot: RunState) -> Iterator[str]:
        if snapshot.staging is None:
            return
        if self._staging_printed_at is None or snapshot.seconds >= self._staging_printed_at + STAGING_LINE_SECONDS:
            self._staging_printed_at = snapshot.seconds
            yield staging_line(snapshot.staging)

    def _steps(self, snapshot: RunState) -> Iterator[_Line]:
        if len(snapshot.restarts) > self._num_restarts:
            self._last_step = None  # the next job may repeat steps
        final = snapshot.steps[-1].step if snapshot.steps and _has_stopped_training(snapshot) else None
        distance = max(STEPS_PER_LINE, (snapshot.total_steps or 0) // MAX_STEP_LINES)
        for step in snapshot.steps:
            if snapshot.restarts and step.logged_at + WHOLE_SECOND < snapshot.restarts[-1].at:
                continue  # of a job before
            last = self._last_step
            is_due = last is None or step.step // distance > last // distance
            if (last is None or step.step > last) and (is_due or step.step in (final, snapshot.total_steps)):
                self._last_step = step.step
                yield _Line(_step_line(step, snapshot), _within_second(step.logged_at))

    def _logs(self, snapshot: RunState) -> Iterator[str]:
        """The last lines of failed pods, once the run has ended and all of them have arrived."""
        if snapshot.ended_at is None or (snapshot.error is not None and snapshot.error.excerpt):
            return  # the summary shows what decided
        for pod, lines in snapshot.last_lines.items():
            if pod not in self._logs_printed and lines:
                self._logs_printed.add(pod)
                yield f"last lines of {pod}:"
                yield from (f"  {line}" for line in own_lines(lines)[-NUM_LAST_LINES:])

    def _warnings(self, snapshot: RunState) -> Iterator[str]:
        """Warnings as they come, and as they go while the run lasts: steps are read again. One that comes in place of
        another has a further count."""
        new = [warning for warning in snapshot.warnings if warning not in self._warnings_printed]
        gone = self._warnings_printed.difference(snapshot.warnings) if snapshot.ended_at is None else set()
        self._warnings_printed = (self._warnings_printed | {*new}) - gone
        yield from (f"warning: {warning}" for warning in new)
        if not new:
            yield from (f"no longer: {warning.partition('. ')[0].rstrip('.')}." for warning in sorted(gone))

    def _troubles(self, trouble: str | None) -> Iterator[str]:
        if trouble != self._trouble:
            self._trouble = trouble
            yield trouble or "observing goes on"


def is_told(visit: Visit, snapshot: RunState) -> bool:
    """Whether a state is worth a line: those of the run's own execution that take their time."""
    return visit.execution == snapshot.execution and visit.kind not in SILENT_KINDS


def _has_stopped_training(snapshot: RunState) -> bool:
    """Whether the newest step is the last one of the run, or of a job that may be started again."""
    training = [pod for pod in snapshot.pods if pod.stage == Stage.TRAINING]
    return snapshot.ended_at is not None or (bool(training) and all(pod.finished for pod in training))


def _seconds(moment: datetime | None, snapshot: RunState) -> float:
    """Time of an event in seconds since the start, at most the snapshot's own."""
    if moment is None or snapshot.started_at is None:
        return snapshot.seconds
    return min(snapshot.seconds, max(0.0, (moment - snapshot.started_at).total_seconds()))


def _within_second(moment: datetime | None) -> datetime | None:
    return moment if moment is None or moment.microsecond else moment + WHOLE_SECOND


def _time_of_phase(pod: Pod) -> datetime | None:
    """Time when the pod entered its phase; None if the pod does not record it."""
    match pod.phase:
        case "Pending":
            return pod.created_at
        case "Running":
            return pod.started_at
    return pod.finished_at


def _pod_line(pod: Pod) -> str:
    told = [f"pod {pod.name} {pod.phase}"]
    if pod.node:
        told.append(f"on {pod.node}")
    if pod.exit_code is not None:
        told.append(f"exit code {pod.exit_code}")
    if pod.phase not in ("Running", "Succeeded") and (pod.message or pod.reason):
        told.append(cause(pod.name, pod.message or "", pod.exit_code, None) or str(pod.reason))
    return ", ".join(told)


def _step_line(step: Step, snapshot: RunState) -> str:
    of_all = f"/{snapshot.total_steps:,}" if snapshot.total_steps else ""
    left = snapshot.seconds_left
    rest = f", {clock(left)} left" if left and step is snapshot.steps[-1] else ""
    said = [f"loss {significant(step.loss)}"] if step.loss is not None else []
    if speed := speed_of(step.throughput, step.metrics, step.throughput_of):
        said.append(speed)
    return f"step {step.step:,}{of_all}{': ' if said else ''}{', '.join(said)}{rest}"
