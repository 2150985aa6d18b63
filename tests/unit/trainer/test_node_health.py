"""The test of a gang's nodes: how it is started, what the nodes agree on, and how each of them ends."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
import torch.distributed as dist
from torch.distributed import TCPStore  # type: ignore[attr-defined]

from tests.waiting import wait_until
from trainer import node_health, node_test
from trainer.device.cpu import CpuDevice
from trainer.helpers import install
from trainer.node_figures import Measured
from trainer.node_test import Meeting, Place
from trainer.runtime import environment
from trainer.runtime.errors import ConfigInvalid, NodeUnhealthy, PeerLost

TORCHRUN = ("torchrun", "--nnodes", "4", "--node-rank=2", "--master_addr", "pod-0.job", "--master_port", "23456")


def test_the_test_meets_at_the_port_after_the_trainings() -> None:
    words = node_health.test_of((*TORCHRUN, "train.py", "--nnodes", "9"), processes=8)
    assert words[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert " ".join(words[3:]) == (
        "--nnodes 4 --node_rank 2 --master_addr pod-0.job --master_port 23457 --nproc_per_node 8 -m trainer.node_test"
    )


def test_a_command_without_a_rendezvous_is_refused() -> None:
    with pytest.raises(ConfigInvalid, match="has no --master_addr, --master_port"):
        node_health.test_of(("torchrun", "--nnodes", "4", "--node_rank", "0", "train.py"), processes=1)


def test_an_image_without_pytorch_trains_untested(tmp_path: Path) -> None:
    install.main(["--into", str(tmp_path / "helpers")], environment.read({}))
    command = [sys.executable, "-S", str(tmp_path / "helpers"), "node_health", "--processes", "1", "--"]
    done = subprocess.run([*command, "echo", "trains"], capture_output=True, text=True, check=False, env={})
    assert (done.returncode, done.stdout) == (0, "The image has no PyTorch, so the nodes are not tested.\ntrains\n")


@pytest.fixture
def port() -> Iterator[int]:
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    yield store.port


def outcomes(port: int, nodes: Sequence[Callable[[Meeting], object]], *, per_node: int = 1) -> list[str]:
    """What each process of a gang ends with: `healthy`, or the error."""
    ended = [""] * len(nodes)

    def process(rank: int) -> None:
        try:
            nodes[rank](Meeting(Place(rank, len(nodes), per_node), "localhost", port))
            ended[rank] = "healthy"
        except (NodeUnhealthy, PeerLost) as error:
            ended[rank] = f"{type(error).__name__}: {error}"

    threads = [threading.Thread(target=process, args=(rank,)) for rank in range(len(nodes))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    return ended


def measuring(*figures: float | str) -> Callable[[Meeting], object]:
    """A process whose measurements have these results, one after the other; the last one again and again."""
    left = list(figures)

    def measure() -> Measured:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, str):
            raise RuntimeError(found)
        return Measured(gigabytes_per_second=found)

    return lambda meeting: node_test.measured(meeting, "memory", "The memory", measure)


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_test, "SECONDS_FOR_THE_UNHEALTHY", 0.0)
    monkeypatch.setattr(node_test, "PAUSE_SECONDS", 0.0)


def test_the_slow_node_names_itself_and_its_peers_do_not(port: int) -> None:
    slow, *others = outcomes(port, [measuring(1.0), *(measuring(8.0) for _ in range(3))])
    assert slow.startswith("NodeUnhealthy: The memory reached 1 GB/s") and "4 nodes is 8 GB/s" in slow
    assert others == ["PeerLost: Node 0 of the gang failed its test; its own report says why."] * 3


def test_a_node_that_was_slow_once_is_healthy(port: int) -> None:
    assert outcomes(port, [measuring(8.0), measuring(1.0, 7.0), measuring(8.0)]) == ["healthy"] * 3


class DisturbedDevice(CpuDevice):
    """Copies take a clock's time: 40 ms while other programs disturb them, and 1 ms afterwards."""

    def __init__(self, *, num_disturbed: int) -> None:
        super().__init__()
        self.now, self._num_disturbed = 0.0, num_disturbed

    def start_queued_work(self) -> None:
        self.now += 0.04 if self._num_disturbed > 0 else 0.001
        self._num_disturbed -= 1


def test_memory_that_is_disturbed_at_first_is_as_fast_as_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    device = DisturbedDevice(num_disturbed=10)
    monkeypatch.setattr("time.perf_counter", lambda: device.now)
    figure = node_test.copied(device).gigabytes_per_second
    assert figure == pytest.approx(2 * 4 * node_test.ELEMENTS / 0.001 / 1e9)


def test_one_process_that_fails_makes_its_node_unhealthy(port: int) -> None:
    nodes = [measuring(8.0), measuring(8.0), measuring(8.0), measuring("HBM parity error")]
    ended = outcomes(port, nodes, per_node=2)
    assert [each.partition(":")[0] for each in ended] == ["PeerLost", "PeerLost", "NodeUnhealthy", "NodeUnhealthy"]
    assert "RuntimeError: HBM parity error" in ended[3]


def test_what_fails_on_every_node_is_left_to_the_program(port: int) -> None:
    assert outcomes(port, [measuring("no such backend") for _ in range(3)]) == ["healthy"] * 3


def test_an_exchange_that_fails_with_both_neighbours_names_the_error() -> None:
    without_backend = dist.ProcessGroup(0, 2)
    failed = node_test.exchanged(CpuDevice(), [without_backend, without_backend], 3)
    assert failed.error.startswith("RuntimeError: No backend type associated")
    assert node_test.exchanged(CpuDevice(), [], 1).error == "there was no neighbour"


@pytest.mark.parametrize("healthy_before", [0, 1, 2])
def test_a_node_that_hangs_in_any_measurement_is_unhealthy(port: int, healthy_before: int) -> None:
    """Node 0 is slow, so that the gang measures as often as it may; the last node hangs."""
    ended = hanging_gang(port, [False, False, True], healthy_before)
    assert ended[2] == (
        "NodeUnhealthy: The test before the training (memory) has not ended on this node after 60 seconds; it has on "
        "2 of 3 nodes."
    )
    assert [each.partition(":")[0] for each in ended[:2]] == ["PeerLost"] * 2


@pytest.mark.parametrize("healthy_before", [0, 1, 2])
def test_a_gang_that_hangs_blames_no_node(port: int, healthy_before: int) -> None:
    ended = hanging_gang(port, [True, True, True], healthy_before)
    assert [each.partition(":")[0] for each in ended] == ["PeerLost"] * 3


def hanging_gang(port: int, hang: Sequence[bool], healthy_before: int) -> list[str]:
    """What the time limit ends each node with, when some hang after a number of measurements."""
    gang = [Meeting(Place(rank, len(hang), 1), "localhost", port) for rank in range(len(hang))]
    hanging, released = [threading.Event() for _ in hang], threading.Event()

    def measuring(meeting: Meeting) -> None:
        rank, done = meeting.place.rank, 0

        def measure() -> Measured:
            nonlocal done
            if hang[rank] and done == healthy_before:
                hanging[rank].set()
                released.wait(60)
            done += 1
            return Measured(gigabytes_per_second=8.0 if rank else 1.0)

        with suppress(NodeUnhealthy, PeerLost):
            node_test.measured(meeting, "memory", "The memory", measure)

    threads = [threading.Thread(target=measuring, args=(meeting,), daemon=True) for meeting in gang]
    for thread in threads:
        thread.start()
    for rank, hangs in enumerate(hang):
        assert not hangs or hanging[rank].wait(30)
    late = {rank for rank, hangs in enumerate(hang) if hangs}
    wait_until(lambda: all(meeting.late_nodes() == late for meeting in gang), seconds=30)

    ended = []
    for meeting in gang:
        with pytest.raises((NodeUnhealthy, PeerLost)) as error:
            node_test.require_end(meeting, "memory", 60.0)
        ended.append(f"{error.type.__name__}: {error.value}")
    released.set()
    for thread in threads:
        thread.join(30)
    return ended
