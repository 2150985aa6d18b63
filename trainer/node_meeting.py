"""Answers that the processes of a test exchange through the store of their launcher, and rank 0's verdict on them.

Each process answers one question after the other. Rank 0 collects the answers in a thread, so that no device that hangs
holds the gang up, and stores one verdict for all nodes: none of them decides by itself whether the gang trains.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import timedelta

from torch.distributed import TCPStore  # type: ignore[attr-defined]

from trainer.node_figures import (
    LEAST_LIMIT_SECONDS,
    PARTS,
    Measured,
    Part,
    finding,
    finding_of_start,
    limit_seconds,
    of_node,
    summary,
)
from trainer.node_verdict import BACKSTOP_SECONDS, Verdict, skipped

MAX_MEASUREMENTS = 5
"""Nodes are measured again if one seems unhealthy, and the best figure of each counts."""

AGAIN, NEXT = "again", "next"
"""Reply of rank 0 to all answers to a question."""

START = "start"
"""First question; its answers show that all processes have started."""

POLL_SECONDS, SCAN_SECONDS = 0.05, 1.0
"""Time between two looks at the number of answers, and at the answers that are there while some are missing."""

ACKNOWLEDGED_WITHIN = 30.0
"""Seconds for an unhealthy node to read the verdict. Otherwise it reports nothing, so its peers train."""

_VERDICT = "verdict"

Answers = Sequence[Measured | None]
"""Answers of the processes, by rank; None where one is missing."""


@dataclass(frozen=True)
class Place:
    """This process in the gang."""

    rank: int
    world_size: int
    per_node: int

    @property
    def node(self) -> int:
        """Number of its node."""
        return self.rank // self.per_node

    @property
    def num_nodes(self) -> int:
        """Nodes of the gang."""
        return self.world_size // self.per_node


def connect(address: str, port: int) -> TCPStore:
    """A connection to the launcher's store. Each thread has its own: a call that waits holds it."""
    longest = timedelta(seconds=2 * BACKSTOP_SECONDS)
    return TCPStore(address, port, is_master=False, timeout=longest, wait_for_workers=False)


class Meeting:
    """One process's connection to the others."""

    def __init__(self, place: Place, store: TCPStore) -> None:
        self.place = place
        self._store = store

    def answer(self, question: str, mine: Measured) -> str:
        """Answer a question, and return what rank 0 replies to all."""
        self._store.set(f"{question}/{self.place.rank}", json.dumps(asdict(mine)))
        self._store.add(_count(question), 1)
        return str(self._store.get(_reply(question)).decode())

    def verdict(self) -> Verdict:
        """The verdict, once there is one. The other nodes wait until an unhealthy one has acknowledged it."""
        verdict = Verdict.of_json(self._store.get(_VERDICT))
        if not verdict.unhealthy or self.place.node in verdict.unhealthy:
            return verdict
        if self._is_acknowledged(verdict):
            return replace(verdict, acknowledged=True)
        return skipped(f"found node {next(iter(verdict.unhealthy))} of the gang unhealthy, which does not answer")

    def acknowledge(self) -> None:
        """Say that this node has read the verdict and reports itself."""
        self._store.set(_acknowledgement(self.place.node), "")

    def _is_acknowledged(self, verdict: Verdict) -> bool:
        until = time.monotonic() + ACKNOWLEDGED_WITHIN
        try:
            while time.monotonic() < until:
                if any(self._store.check([_acknowledgement(node)]) for node in verdict.unhealthy):
                    return True
                time.sleep(POLL_SECONDS)
        except RuntimeError:
            return 0 in verdict.unhealthy  # the store has ended with node 0
        return False


class Coordinator:
    """Rank 0's part: it collects the answers and concludes."""

    def __init__(self, place: Place, store: TCPStore) -> None:
        self._place = place
        self._store = store

    def conclude(self) -> None:
        """Store the verdict, whatever happens."""
        try:
            verdict = self._concluded()
        except Exception as error:  # noqa: BLE001  (the other processes wait for a verdict)
            verdict = skipped(f"broke down ({type(error).__name__}: {error})")
        with suppress(RuntimeError):  # without the store, nobody waits any more
            self._store.set(_VERDICT, verdict.to_json())

    def _concluded(self) -> Verdict:
        self._nodes(START, is_enough=_never)
        self._store.set(_reply(START), NEXT)
        began, measured = time.monotonic(), {}
        for part in PARTS:
            question = question_of(part, 0)
            prepared = self._nodes(question, is_enough=_has_failed if part.needs_partners else _never)
            found = finding_of_start(prepared, part)
            if found.unhealthy or found.inconclusive:
                return Verdict(unhealthy=found.unhealthy, sentence=found.inconclusive)
            self._store.set(_reply(question), AGAIN)
            nodes, verdict = self._measured(part)
            if verdict is not None:
                return verdict
            measured[part.name] = nodes
        return Verdict(sentence=summary(measured, seconds=time.monotonic() - began))

    def _measured(self, part: Part) -> tuple[Sequence[Measured], Verdict | None]:
        """The figures of healthy nodes, or else the verdict."""
        longest = 0.0

        def is_overdue(answers: Answers, seconds: float) -> bool:
            took = max((each.seconds for each in answers if each is not None), default=None)
            return took is not None and seconds > limit_seconds(max(longest, took))

        for number in range(1, MAX_MEASUREMENTS + 1):
            question, asked_at = question_of(part, number), time.monotonic()
            nodes = self._nodes(question, is_enough=is_overdue)
            longest = max(longest, *(each.seconds for each in nodes))
            found = finding(nodes, part, seconds=time.monotonic() - asked_at)
            is_last = number == MAX_MEASUREMENTS or any(each.is_late for each in nodes)
            if not found.unhealthy and not found.inconclusive:
                self._store.set(_reply(question), NEXT)
                return nodes, None
            if is_last:
                break
            self._store.set(_reply(question), AGAIN)
        return nodes, Verdict(unhealthy=found.unhealthy, sentence=found.inconclusive)

    def _nodes(self, question: str, *, is_enough: Callable[[Answers, float], bool]) -> list[Measured]:
        """Answers of all nodes, or of those that have answered when `is_enough` ends the wait."""
        asked_at = scanned_at = time.monotonic()
        while self._store.add(_count(question), 0) < self._place.world_size:
            now = time.monotonic()
            if now - scanned_at >= SCAN_SECONDS:
                scanned_at = now
                if is_enough(self._answers(question), now - asked_at):
                    break
            time.sleep(POLL_SECONDS)
        answers, per_node = self._answers(question), self._place.per_node
        return [of_node(answers[first : first + per_node]) for first in range(0, len(answers), per_node)]

    def _answers(self, question: str) -> Answers:
        keys = [f"{question}/{rank}" for rank in range(self._place.world_size)]
        return [Measured(**json.loads(self._store.get(key))) if self._store.check([key]) else None for key in keys]


def question_of(part: Part, number: int) -> str:
    """Name of a question: the preparation of a part is number 0, its measurements follow."""
    return f"{part.name}-{number}"


def _never(_answers: Answers, _seconds: float) -> bool:
    """Start-up and compilation are limited only by the backstop of the whole test."""
    return False


def _has_failed(answers: Answers, seconds: float) -> bool:
    """Whether the nodes wait for one that has failed."""
    return seconds > LEAST_LIMIT_SECONDS and any(each is not None and each.error for each in answers)


def _count(question: str) -> str:
    return f"{question}/answers"


def _reply(question: str) -> str:
    return f"{question}/reply"


def _acknowledgement(node: int) -> str:
    return f"{_VERDICT}/{node}"
