"""A run as lines of plain text, one for each thing that happens: for files, pipes and CI."""

from __future__ import annotations

from collections.abc import Iterator

from trainflow.cli.follow.staging import staging_line
from trainflow.client.observe.snapshot import RunSnapshot
from trainflow.protocol.metrics_line import StepMetrics
from trainflow.record.history import Visit
from trainflow.record.pods import PodView
from trainflow.record.wording import clock, number, rate

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


class PlainView:
    """Remembers what was printed, so that each event is printed once."""

    def __init__(self) -> None:
        self._states_printed: set[str] = set()
        self._phases: dict[str, str] = {}
        self._staging_printed_at: float | None = None
        self._last_step = 0
        self._logs_printed: set[str] = set()
        self._trouble: str | None = None
        self._printed_at = 0.0
        """Time of the newest line, in seconds since the start."""

    def new_lines(self, snapshot: RunSnapshot) -> Iterator[str]:
        """Lines for what has happened since the snapshot before."""
        # An ended run has the seconds of its end, which is a moment before lines that were printed while it went on.
        self._printed_at = max(self._printed_at, snapshot.seconds)
        stamp = f"[{clock(self._printed_at):>7}] "
        for line in (
            *self._states(snapshot),
            *self._pods(snapshot.pods),
            *self._staging(snapshot),
            *self._steps(snapshot),
            *self._logs(snapshot),
            *self._troubles(snapshot.trouble),
        ):
            yield stamp + line

    def _states(self, snapshot: RunSnapshot) -> Iterator[str]:
        """States as they are entered; the further iterations of a loop are not printed again."""
        for visit in snapshot.states:
            if visit.name not in self._states_printed and is_told(visit, snapshot):
                self._states_printed.add(visit.name)
                yield f"state {visit.name}"

    def _pods(self, pods: tuple[PodView, ...]) -> Iterator[str]:
        for pod in pods:
            if self._phases.get(pod.uid) != pod.phase:
                self._phases[pod.uid] = pod.phase
                yield _pod_line(pod)

    def _staging(self, snapshot: RunSnapshot) -> Iterator[str]:
        if snapshot.staging is None:
            return
        if self._staging_printed_at is None or snapshot.seconds >= self._staging_printed_at + STAGING_LINE_SECONDS:
            self._staging_printed_at = snapshot.seconds
            yield staging_line(snapshot.staging)

    def _steps(self, snapshot: RunSnapshot) -> Iterator[str]:
        final = snapshot.steps[-1].step if snapshot.steps and snapshot.ended_at else None
        distance = max(STEPS_PER_LINE, (snapshot.total_steps or 0) // MAX_STEP_LINES)
        for step in snapshot.steps:
            is_due = self._last_step == 0 or step.step // distance > self._last_step // distance
            if step.step > self._last_step and (is_due or step.step in (final, snapshot.total_steps)):
                self._last_step = step.step
                yield _step_line(step, snapshot)

    def _logs(self, snapshot: RunSnapshot) -> Iterator[str]:
        """The last lines of failed pods, once the run has ended and all of them have arrived."""
        if snapshot.ended_at is None:
            return
        for pod, lines in snapshot.last_lines.items():
            if pod not in self._logs_printed and lines:
                self._logs_printed.add(pod)
                yield f"last lines of {pod}:"
                yield from (f"  {line}" for line in lines[-NUM_LAST_LINES:])

    def _troubles(self, trouble: str | None) -> Iterator[str]:
        if trouble != self._trouble:
            self._trouble = trouble
            yield trouble or "observing goes on"


def is_told(visit: Visit, snapshot: RunSnapshot) -> bool:
    """Whether a state is worth a line: those of the run's own execution that take their time."""
    return visit.execution == snapshot.execution and visit.kind not in SILENT_KINDS


def _pod_line(pod: PodView) -> str:
    parts = [f"pod {pod.name} {pod.phase}"]
    if pod.node:
        parts.append(f"on {pod.node}")
    if pod.exit_code is not None:
        parts.append(f"exit code {pod.exit_code}")
    if pod.phase not in ("Running", "Succeeded") and (pod.message or pod.reason):
        parts.append(str(pod.message or pod.reason))
    return ", ".join(parts)


def _step_line(step: StepMetrics, snapshot: RunSnapshot) -> str:
    of_all = f"/{snapshot.total_steps}" if snapshot.total_steps else ""
    left = snapshot.seconds_left
    rest = f", {clock(left)} left" if left and step is snapshot.steps[-1] else ""
    return f"step {step.step}{of_all}: loss {number(step.loss, 4)}, {rate(step.throughput)} sequences/s{rest}"
