"""Test of a gang's nodes, on every process of it: `torchrun … -m trainer.node_test` (started by `trainer.node_health`).

Once all nodes are there, each process copies memory of its device, and each pair of neighbouring nodes exchanges data.
A node that fails, or reaches less than half of the median of the gang, ends with NodeUnhealthy; the others end as its
peers. What fails on every node is no node's fault, and the training goes on to report it.

Where gradients are averaged by one graph of all processes (PyTorch/XLA), the exchange is that graph: it shows that the
collective works, and cannot tell the nodes apart.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from datetime import timedelta
from functools import cached_property
from typing import NoReturn

import torch
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from trainer.device import Device, choose
from trainer.device.distributed import join
from trainer.node_figures import (
    FEWEST_TO_COMPARE,
    Measured,
    better,
    of_node,
    rounds,
    summary,
    unhealthy,
)
from trainer.runtime import program
from trainer.runtime.environment import Environment
from trainer.runtime.errors import NodeUnhealthy, PeerLost

LONGEST_WAIT = timedelta(hours=2)
"""Wait for the other nodes. The workflow ends a gang that is not complete, or does nothing, long before."""

MEMORY_SECONDS, EXCHANGE_SECONDS = 60.0, 45.0
"""Longest duration of the two parts, with the start of the devices and the compilation of two small graphs. Together
with the start of PyTorch they stay below two minutes."""

SECONDS_FOR_THE_UNHEALTHY = 10.0
"""Time in which the unhealthy node reports itself before its peers end: the first one to end ends the job."""

ELEMENTS = 8 << 20
"""Numbers of 4 bytes that are copied or exchanged at once: 32 MiB, more than fits in caches."""

REPETITIONS = 5
"""The fastest one counts: other programs may have disturbed the rest."""

COPYING_SECONDS = 0.5
"""Memory is copied for so long at least. Five copies take a few milliseconds, in which all may have been disturbed."""

MAX_MEASUREMENTS = 3
"""A node that seems slow is measured again, with all others, and its best figure counts."""

PAUSE_SECONDS = 2.0
"""Time before it is measured again, in which what disturbed it may end."""

Sentences = dict[int, str]


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


class Meeting:
    """What the processes tell each other, through the store of their launcher."""

    def __init__(self, place: Place, address: str, port: int) -> None:
        self.place = place
        self._connect: Callable[[], TCPStore] = lambda: TCPStore(
            address, port, is_master=False, timeout=LONGEST_WAIT, wait_for_workers=False
        )
        self._store = self._connect()
        self._question = ""

    def begin(self, question: str) -> None:
        """Begin the next question to the gang. A process does so once all have answered the one before.

        Args:
            question: Its name; another one each time.
        """
        self._question = question

    def agree(self, mine: Measured, judge: Callable[[Sequence[Measured]], object]) -> object:
        """Answer the question, and return what rank 0 concludes from the figures of all nodes.

        Args:
            mine: What this process has measured.
            judge: Gives something that JSON can hold from the figures of the nodes, by their number.
        """
        place, store, what = self.place, self._store, self._question
        store.set(f"{what}/{place.rank}", json.dumps(asdict(mine)))
        if place.rank == 0:
            told = [Measured(**json.loads(store.get(f"{what}/{rank}"))) for rank in range(place.world_size)]
            nodes = [of_node(told[first : first + place.per_node]) for first in range(0, len(told), place.per_node)]
            store.set(f"{what}/concluded", json.dumps(judge(nodes)))
        return json.loads(store.get(f"{what}/concluded"))

    def late_nodes(self) -> frozenset[int]:
        """Nodes of which a process has not answered the question yet. Called from another thread."""
        store, place, what = self._connect(), self.place, self._question
        late = (rank for rank in range(place.world_size) if not store.check([f"{what}/{rank}"]))
        return frozenset(rank // place.per_node for rank in late)


def main(_argv: Sequence[str], environment: Environment) -> None:
    """Measure, and end with an error if a node of the gang is unhealthy.

    Raises:
        NodeUnhealthy: If it is this node.
        PeerLost: If it is another one.
    """
    torch.set_num_threads(1)  # on a CPU, a copy by several threads waits for the one that another program holds up
    place = Place(environment.rank, environment.world_size, environment.local_world_size)
    meeting = Meeting(place, os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
    meeting.begin("here")
    meeting.agree(Measured(), lambda _nodes: None)
    began = time.monotonic()
    with ExitStack() as stack:
        test = Test(environment, place, stack)
        with limited(meeting, "memory", MEMORY_SECONDS):
            memory = measured(meeting, "memory", "The memory of this node's devices", test.memory)
        with limited(meeting, "exchange", EXCHANGE_SECONDS):
            what = "The exchange of data with this node's neighbours in the gang"
            exchange = measured(meeting, "exchange", what, test.exchange, fewest=FEWEST_TO_COMPARE)
    if place.rank == 0:
        print(summary(memory, exchange, seconds=time.monotonic() - began), flush=True)


class Test:
    """The measurements of this process. What they need is started by the first of them, so that its errors count."""

    def __init__(self, environment: Environment, place: Place, stack: ExitStack) -> None:
        self._environment = environment
        self._place = place
        self._stack = stack
        self._groups: list[dist.ProcessGroup] | None = None

    @cached_property
    def _device(self) -> Device:
        return choose("auto", local_rank=self._environment.local_rank)

    def memory(self) -> Measured:
        """How fast the device copies its memory."""
        return copied(self._device)

    def exchange(self) -> Measured:
        """How fast this node exchanges data with its better neighbour."""
        if self._groups is None:
            self._stack.enter_context(join(self._environment, self._device))
            self._groups = pairs_of(self._place, self._device)
        return exchanged(self._device, self._groups, self._place.world_size)


def measured(
    meeting: Meeting, name: str, what: str, measure: Callable[[], Measured], *, fewest: int = 2
) -> Mapping[int, Measured]:
    """What the nodes have measured, once all are healthy.

    Args:
        meeting: The processes of the gang.
        name: Name of the measurement.
        what: The same for a sentence.
        measure: Measures once.
        fewest: Nodes without which figures are not compared.

    Raises:
        NodeUnhealthy: If this node failed, or was slow in every measurement.
        PeerLost: If another one did.
    """
    best: Measured | None = None
    nodes: list[Measured] = []

    def judge(told: Sequence[Measured]) -> Sentences:
        nodes[:] = told
        return unhealthy(told, what, fewest=fewest)

    found: Mapping[str, str] = {}
    for number in range(1, MAX_MEASUREMENTS + 1):
        if number > 1:
            time.sleep(PAUSE_SECONDS)
        meeting.begin(f"{name}-{number}")
        now = _attempt(measure)
        best = now if best is None else better(best, now)
        answer = meeting.agree(best, judge)
        found = answer if isinstance(answer, dict) else {}
        if not found:
            return dict(enumerate(nodes))
    require_health({int(node): sentence for node, sentence in found.items()}, meeting.place.node)
    return {}


def require_health(found: Mapping[int, str], node: int) -> None:
    """Require that no node is unhealthy.

    Raises:
        NodeUnhealthy: If this node is.
        PeerLost: If another one is, after some time for its own report.
    """
    if node in found:
        raise NodeUnhealthy(found[node])
    if found:
        time.sleep(SECONDS_FOR_THE_UNHEALTHY)
        raise PeerLost(f"Node {next(iter(found))} of the gang failed its test; its own report says why.")


def _attempt(measure: Callable[[], Measured]) -> Measured:
    try:
        return measure()
    except Exception as error:  # noqa: BLE001  (whatever a driver raises is the result of the test)
        first = next(iter(str(error).splitlines()), "")
        return Measured(error=f"{type(error).__name__}: {first}")


def copied(device: Device) -> Measured:
    """How fast the device copies its memory, and whether what it reads is what was written."""
    source = device.load(torch.ones(ELEMENTS))
    best, copies, began = 0.0, 0, time.perf_counter()
    while copies < REPETITIONS or time.perf_counter() - began < COPYING_SECONDS:
        copies += 1
        started = time.perf_counter()
        copy = source + 1
        device.start_queued_work()
        last = float(copy[-1])
        best = max(best, 2 * source.nbytes / (time.perf_counter() - started) / 1e9)
        if last != 2:
            return Measured(error=f"a number in memory was {last} and should be 2")
    wrong = int((copy != 2).sum())
    return (
        Measured(error=f"{wrong} of {ELEMENTS} numbers in memory were wrong")
        if wrong
        else Measured(gigabytes_per_second=best)
    )


def pairs_of(place: Place, device: Device) -> list[dist.ProcessGroup]:
    """The groups of this node and each of its neighbours; none where one graph averages over all processes."""
    if device.average is not None:
        return []
    mine = []
    for pairs in rounds(place.num_nodes):
        for pair in (pair for pair in pairs if place.node in pair):
            ranks = [node * place.per_node + local for node in pair for local in range(place.per_node)]
            mine.append(dist.new_group(ranks, backend=device.backend, use_local_synchronization=True))
    return mine


def exchanged(device: Device, groups: Sequence[dist.ProcessGroup], world_size: int) -> Measured:
    """How fast this node averages numbers with its better neighbour."""
    if device.average is not None:
        numbers = device.load(torch.ones(ELEMENTS))
        device.average([numbers], world_size, device.bucket_mib)
        device.start_queued_work()
        return Measured() if float(numbers[-1]) == 1 else Measured(error="the sum over all processes was wrong")
    best: Measured | None = None
    for group in groups:
        now = _attempt(lambda group=group: _exchanged(device, group))  # type: ignore[misc]
        best = now if best is None else better(best, now)
    return Measured(error="there was no neighbour") if best is None else best


def _exchanged(device: Device, group: dist.ProcessGroup) -> Measured:
    best, size = 0.0, dist.get_world_size(group)
    for _ in range(REPETITIONS):  # as many as on the other node: each is a collective
        numbers = device.load(torch.ones(ELEMENTS // 8))
        started = time.perf_counter()
        dist.all_reduce(numbers, group=group)
        last = float(numbers[-1])
        best = max(best, numbers.nbytes / (time.perf_counter() - started) / 1e9)
        if last != size:
            return Measured(error=f"the sum over {size} processes was {last}")
    return Measured(gigabytes_per_second=best)


@contextmanager
def limited(meeting: Meeting, part: str, seconds: float) -> Iterator[None]:
    """Bound a part of the test: a device that hangs answers no signal, so a thread ends the process."""
    timer = threading.Timer(seconds, _end, (meeting, part, seconds))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _end(meeting: Meeting, part: str, seconds: float) -> NoReturn:
    os._exit(program.run(lambda _argv, _place: require_end(meeting, part, seconds), (), os.environ))


def require_end(meeting: Meeting, part: str, seconds: float) -> NoReturn:
    """Judge a part of the test that has not ended in its time, by the question that the gang has begun last.

    Raises:
        NodeUnhealthy: If this node is late, and not all others are.
        PeerLost: Otherwise.
    """
    place, late = meeting.place, meeting.late_nodes()
    if place.node in late and len(late) < place.num_nodes:
        raise NodeUnhealthy(
            f"The test before the training ({part}) has not ended on this node after {seconds:g} seconds; it has on "
            f"{place.num_nodes - len(late)} of {place.num_nodes} nodes."
        )
    time.sleep(SECONDS_FOR_THE_UNHEALTHY)
    raise PeerLost(f"The test before the training has not ended after {seconds:g} seconds.")


if __name__ == "__main__":
    code = program.run(main, sys.argv[1:], os.environ)
    program.leave(code)
