"""The logged steps of a training in their order, kept so as its log is read."""

from __future__ import annotations

from bisect import bisect_left
from operator import attrgetter

from trainflow.observed.step import Step


class StepsInOrder:
    """Each step once, as its last line says: a job that was started again repeats steps.

    The same as `record.published.latest_of_each_step` of all lines, without going through them for each question.
    """

    def __init__(self) -> None:
        self._steps: list[Step] = []
        self._taken: tuple[Step, ...] | None = ()

    def add(self, step: Step) -> None:
        """Take the newest line; it replaces an older one of its step."""
        self._taken = None
        if not self._steps or step.step > self._steps[-1].step:
            self._steps.append(step)
            return
        place = bisect_left(self._steps, step.step, key=attrgetter("step"))
        if self._steps[place].step == step.step:
            self._steps[place] = step.after(self._steps[place])
        else:
            self._steps.insert(place, step)

    def all(self) -> tuple[Step, ...]:
        """The steps; the same object until there is another line."""
        if self._taken is None:
            self._taken = tuple(self._steps)
        return self._taken
