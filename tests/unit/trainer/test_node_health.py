"""The test of a gang's nodes as seen by the process that starts it: only a verdict that names a node ends a gang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.fakes.plans import launch_of, node_of, words_of
from tests.waiting import wait_until
from tests.wording import wording
from trainer import node_measurements, node_verdict
from trainer.device.cpu import CpuDevice
from trainer.helpers import install
from trainer.node_figures import Measured
from trainer.node_verdict import Verdict
from trainer.runtime import environment
from trainer.runtime.errors import NodeUnhealthy, PeerLost
from trainer.steps import node_health
from trainflow.protocol.plan import NodeTest, Plan


def test_the_test_meets_at_the_port_after_the_trainings() -> None:
    launch = launch_of("train.py", "--nnodes", "9", launcher="torchrun", num_nodes=4, port=23456)
    node = node_of(Plan(launch=launch), rank=2, master_addr="pod-0.job")
    words = node_health.test_of(NodeTest(processes=8), node)
    assert words[:3] == [sys.executable, "-m", "torch.distributed.run"]
    assert " ".join(words[3:]) == (
        wording(
            "node_health.the_test_meets_at_the_port_after_the_trainings",
            "node_rank",
            "master_addr",
            "master_port",
            "23457",
        )
    )


def test_an_image_without_pytorch_trains_untested(tmp_path: Path) -> None:
    install.main(["--into", str(tmp_path / "helpers")], environment.read({}))
    _, *words = words_of("echo", "trains", node_test=NodeTest(processes=1))
    command = [sys.executable, "-S", str(tmp_path / "helpers"), "supervisor", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={})
    assert (done.returncode, done.stdout) == (0, "The image has no PyTorch, so the nodes are not tested.\ntrains\n")


def test_the_node_that_the_verdict_names_reports_itself_and_its_peers_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_health, "SECONDS_FOR_THE_UNHEALTHY", 0.0)
    verdict = Verdict(unhealthy={2: "Slow."}, acknowledged=True)
    with pytest.raises(NodeUnhealthy) as own:
        node_health.require_health(verdict, 2)
    assert str(own.value) == wording(
        "node_health.the_node_that_the_verdict_names_reports_itself_and_its_peers_follow", "compute.check_nodes"
    )
    with pytest.raises(PeerLost, match=r"Node 2 .*compute\.check_nodes: false"):
        node_health.require_health(verdict, 0)


def test_a_verdict_that_names_no_node_is_printed_and_the_gang_trains(capsys: pytest.CaptureFixture[str]) -> None:
    node_health.require_health(Verdict(sentence="Tested 2 nodes."), 0)
    assert capsys.readouterr().out == "Tested 2 nodes.\n"


def test_the_first_verdict_of_a_node_stays(tmp_path: Path) -> None:
    assert node_verdict.read(tmp_path) is None
    first = Verdict(unhealthy={3: "Slow."}, acknowledged=True, sentence="")
    node_verdict.write(tmp_path, first)
    node_verdict.write(tmp_path, Verdict(sentence="Late."))
    assert node_verdict.read(tmp_path) == first


def process(*statements: str) -> list[str]:
    """A launcher of the test that does this."""
    lines = (
        "import os, pathlib, signal, sys, time",
        "from trainer import node_verdict",
        "from trainer.node_verdict import Verdict",
        "from trainflow.protocol import variables",
        "folder = pathlib.Path(os.environ[variables.NODE_TEST_DIR])",
        *statements,
    )
    return [sys.executable, "-c", "\n".join(lines)]


HANGS = ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", "time.sleep(600)")
FOUND = "node_verdict.write(folder, Verdict(sentence='Tested.'))"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_health, "SECONDS_TO_END", 0.2)


@pytest.mark.lengthy
@pytest.mark.parametrize(
    ("launcher", "sentence"),
    [
        (process(FOUND), "Tested."),
        (process(FOUND, "sys.exit(1)"), "Tested."),
        (process(FOUND, *HANGS), "Tested."),
        (
            process("node_verdict.mark_started(folder)", *HANGS),
            wording("node_health.whatever_happens_to_the_test_it_is_ended_and_the_gang_trains.1", "0.2"),
        ),
        (
            process("sys.exit(1)"),
            wording("node_health.whatever_happens_to_the_test_it_is_ended_and_the_gang_trains.2", "1"),
        ),
        (
            process("os.kill(os.getpid(), signal.SIGSEGV)"),
            wording(
                "node_health.whatever_happens_to_the_test_it_is_ended_and_the_gang_trains.3", "training", "without"
            ),
        ),
    ],
    ids=["ends", "fails", "hangs at its end", "hangs", "without a verdict", "crashes"],
)
def test_whatever_happens_to_the_test_it_is_ended_and_the_gang_trains(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: Sequence[str], sentence: str
) -> None:
    monkeypatch.setattr(node_health, "BACKSTOP_SECONDS", 0.0)
    assert node_health.tested(launcher, tmp_path) == Verdict(sentence=sentence)
    assert not any(Path(f"/proc/{pid}").exists() for pid in node_verdict.started(tmp_path))


def test_a_test_that_cannot_be_started_does_not_end_the_training(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refused(*_words: object, **_options: object) -> None:
        raise OSError("read-only file system")

    monkeypatch.setattr("tempfile.TemporaryDirectory", refused)
    node_health.prepare(NodeTest(processes=1), node_of(Plan(launch=launch_of("train.py"))))
    assert capsys.readouterr().out == (
        "The test of the nodes could not be started (read-only file system); the training starts without its result.\n"
    )


@pytest.mark.lengthy
def test_a_stop_during_the_test_ends_the_pod_and_starts_no_training(tmp_path: Path) -> None:
    launcher = process("node_verdict.mark_started(folder)", "time.sleep(600)")
    ended: list[object] = []

    def stop() -> None:
        wait_until(lambda: bool(node_verdict.started(tmp_path)))
        os.kill(os.getpid(), signal.SIGTERM)

    stopper = threading.Thread(target=stop)
    stopper.start()
    try:
        with pytest.raises(SystemExit) as end:
            ended.append(node_health.tested(launcher, tmp_path))
    finally:
        stopper.join()
    assert (end.value.code, ended) == (128 + signal.SIGTERM, [])


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
    figure = node_measurements.copied(device).gigabytes_per_second
    assert figure == pytest.approx(2 * 4 * node_measurements.ELEMENTS / 0.001 / 1e9)


def test_an_error_of_a_driver_is_a_result_with_its_first_line() -> None:
    def breaks() -> Measured:
        raise RuntimeError("HBM parity error\nsecond line")

    found = node_measurements.attempted(breaks)
    assert (found.error, found.gigabytes_per_second) == ("RuntimeError: HBM parity error", None)
