"""Finds the steps that a program repeats after a restart: what the restart has cost."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from trainflow.observed.step import Step
from trainflow.workflow.run import MetricsCursor, StepsAgain

MAX_KEPT = 20
"""Newest repetitions that are kept."""


class RepetitionWatch:
    """Takes restarts and steps in the order of the log. Only the first step after a restart is compared: evaluations
    and several loggers may print lower numbers at any time."""

    def __init__(self, cursor: MetricsCursor, *, is_new_log: bool = False) -> None:
        """Begin behind a cursor.

        Args:
            cursor: Position of what has been read.
            is_new_log: Whether the next line is the first one of another log: of a job that was started again.
        """
        self._newest = cursor.last_step
        self.awaits_step = cursor.awaits_step or (is_new_log and cursor.last_step is not None)
        self._held: int | None = None
        self._began_at: datetime | None = None
        self.found: list[StepsAgain] = []

    def begin(self, at: datetime | None = None, held: Step | None = None) -> None:
        """The program is started again.

        Args:
            at: Time of the line; None for the first line of another pod.
            held: A step of before whose line was read, and which is added later.
        """
        if held is not None:
            self.add([held], held.logged_at)
        self.awaits_step, self._began_at, self._held = True, at, held.step if held else None

    def add(self, steps: Iterable[Step], at: datetime) -> None:
        """Take the steps of a line.

        Args:
            steps: The steps.
            at: Time of the line, perhaps in whole seconds.
        """
        for step in steps:
            if not step.is_addition:
                self._add(step.step, at)

    def _add(self, step: int, at: datetime) -> None:
        is_held, self._held = step == self._held, None
        newest = self._newest
        self._newest = step if newest is None else max(newest, step)
        # The newest step may have been held since before the restart, also by an earlier poll.
        if not self.awaits_step or is_held or step == newest:
            return
        self.awaits_step = False
        if newest is not None and step < newest:
            at = max(at, self._began_at) if self._began_at else at
            self.found.append(StepsAgain(at=at, newest_step=newest, first_step=step))


def with_repetitions(cursor: MetricsCursor, watch: RepetitionWatch) -> dict[str, object]:
    """Fields of the cursor after more lines; repetitions that it knows change nothing."""
    new = [each for each in watch.found if each not in cursor.steps_again]
    return {"steps_again": (*cursor.steps_again, *new)[-MAX_KEPT:], "awaits_step": watch.awaits_step}
