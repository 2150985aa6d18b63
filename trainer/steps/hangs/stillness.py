"""Whether the ranks of a node stand still. Pure: the watch gives it what it has read of the processes.

A rank moves if it, or a process that it has started, reads or writes, if such a process computes, or if its stack
changes. A rank that computes moves as well, except in a collective operation: waiting for the others takes CPU there
(docs/decisions/0095-evidence-of-a-hang.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from trainer.runtime.process_status import ENDED
from trainer.steps.hangs.processes import Process, Rank
from trainflow.protocol.stacks import COLLECTIVE_FILES, Frame

MIN_CPU = 0.1
"""Least share of a core of a process that computes. Threads that only look after others take less."""

MIN_BYTES = 65_536
"""Fewest bytes between two looks of a process that reads or writes. The output of a heartbeat is shorter."""

MIN_SWITCHES = 2.0
"""Fewest times a second that a working main thread is given the CPU. One that polls is slower, and one that waits for a
lock or for storage is not given it."""

DUMPS = 4
"""Times that stacks are taken before they are reported. They are taken as often while the ranks of a node compute, at
first; each time that they turn out to work, it takes twice as long until the next time."""

Stack = tuple[tuple[Frame, ...], ...]
"""Stacks of the threads of a rank, the main thread's first."""


class Action(Enum):
    """The next thing that the watch has to do."""

    NOTHING = auto()
    TAKE_STACKS = auto()
    REPORT = auto()
    TAKE_BACK = auto()


@dataclass(frozen=True, kw_only=True)
class Look:
    """The ranks at one moment, in seconds of a clock that only rises."""

    at: float
    ranks: Sequence[Rank]


class Stillness:
    """Measures for how long nothing has moved.

    Args:
        quiet_seconds: The stacks are reported when nothing has moved for this time.
    """

    def __init__(self, quiet_seconds: float) -> None:
        self._quiet, self._patience = quiet_seconds, quiet_seconds / DUMPS
        self._before: Look | None = None
        self._since = self._next = self._probed_at = 0.0
        self._computing: set[int] = set()
        self._waiting: set[int] = set()
        """Ranks that were in a collective operation at the newest stacks: their computing is not a movement."""
        self._stacks: Mapping[int, Stack] | None = None
        self._is_reported = False

    @property
    def seconds(self) -> float:
        """Time since the newest movement, at the newest look."""
        return self._before.at - self._since if self._before is not None else 0.0

    def look(self, now: Look) -> Action:
        """Compare the ranks with those of the look before."""
        before, self._before = self._before, now
        if before is None or not now.ranks or moves(before, now):
            return self._moved(now.at)
        self._computing = computing(before, now) - self._waiting
        if self._computing:
            taken_back, is_due = self._moved(now.at), now.at - self._probed_at >= self._patience
            return Action.TAKE_STACKS if taken_back is Action.NOTHING and is_due else taken_back
        return Action.TAKE_STACKS if self.seconds >= self._next else Action.NOTHING

    def skip_output(self, now: Look) -> None:
        """Take what the ranks have written until now for their stacks, and not for a movement."""
        self._before = now

    def stacks(self, stacks: Mapping[int, Stack]) -> Action:
        """Compare the stacks that were taken with the first ones since the newest movement."""
        at = self._since + self.seconds
        self._probed_at, self._next = at, self.seconds + self._quiet / DUMPS
        waiting = {number for number, stack in stacks.items() if in_collective(stack)}
        if self._computing - waiting:
            self._patience = min(2 * self._patience, self._quiet)
            return Action.NOTHING
        self._waiting = waiting
        if self._stacks is None:
            self._stacks = stacks
        if _main(self._stacks) != _main(stacks):
            return self._moved(at)
        if self._is_reported or self.seconds < self._quiet:
            return Action.NOTHING
        self._is_reported = True
        return Action.REPORT

    def _moved(self, at: float) -> Action:
        was_reported, self._is_reported = self._is_reported, False
        self._since, self._stacks, self._next = at, None, self._quiet / DUMPS
        self._waiting = set()
        return Action.TAKE_BACK if was_reported else Action.NOTHING


def moves(before: Look, now: Look) -> bool:
    """Whether a rank has read or written, has started a process, or has one that computes."""
    known = _processes(before)
    seconds = now.at - before.at
    for rank in now.ranks:
        for process in (rank.process, *rank.children):
            earlier = known.get(process.pid)
            if process.state in ENDED:
                continue
            if earlier is None or process.io_bytes - earlier.io_bytes >= MIN_BYTES:
                return True
            if process is not rank.process and process.cpu_seconds - earlier.cpu_seconds >= MIN_CPU * seconds:
                return True
    return False


def in_collective(stack: Stack) -> bool:
    """Whether the main thread is inside a collective operation."""
    return bool(stack) and any(part in frame.file for frame in stack[0][:3] for part in COLLECTIVE_FILES)


def computing(before: Look, now: Look) -> set[int]:
    """The ranks that have used the CPU, or whose main thread was often given it."""
    known, seconds = _processes(before), now.at - before.at
    found = set()
    for rank in now.ranks:
        earlier, process = known.get(rank.process.pid), rank.process
        if earlier is not None and (
            process.cpu_seconds - earlier.cpu_seconds >= MIN_CPU * seconds
            or process.switches - earlier.switches >= MIN_SWITCHES * seconds
        ):
            found.add(rank.number)
    return found


def _processes(look: Look) -> Mapping[int, Process]:
    return {each.pid: each for rank in look.ranks for each in (rank.process, *rank.children)}


def _main(stacks: Mapping[int, Stack]) -> Mapping[int, tuple[Frame, ...]]:
    return {number: stack[0] if stack else () for number, stack in stacks.items()}
