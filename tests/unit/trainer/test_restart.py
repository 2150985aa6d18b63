"""A gang starts its program again in its pods when a signal has ended a rank, and ends with the same weights."""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.plans import launch_of, supervised
from tests.unit.trainer.test_checkpoint_files import write
from tests.waiting import wait_until
from trainer.runtime.environment import read
from trainer.runtime.node import Node
from trainer.steps import restart
from trainflow.protocol import variables
from trainflow.protocol.plan import Plan, Report, Restart, Resume
from trainflow.protocol.restart_line import parse_restarted_line

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="orphans are found on Linux only")

PROGRAM = Path(__file__).parents[2] / "assets/programs/mortal.py"
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
BY_SIGKILL = "signal 9 (SIGKILL)"
RESUME = Resume(path="checkpoint-{step}.json", words=("--from", "{checkpoint}"), settled_seconds=0, decision="job-1")


class Gang:
    """Supervisors of all nodes of a gang, on this machine."""

    def __init__(self, folder: Path, *, num_nodes: int, launcher: str, processes: int, **environ: str) -> None:
        self.folder, self.size = folder, num_nodes * processes
        (folder / "run").mkdir(parents=True)
        is_torchrun = launcher == "torchrun"
        words = [str(PROGRAM)] if is_torchrun else [sys.executable, str(PROGRAM)]
        launch = launch_of(
            *words, launcher=launcher, num_nodes=num_nodes, processes=processes, port=free_port(), is_python=is_torchrun
        )
        self.nodes = [self._start(node, launch, environ) for node in range(num_nodes)]

    def _start(self, node: int, launch: Any, environ: dict[str, str]) -> subprocess.Popen[bytes]:
        steps = {"report": Report(), "restart": Restart(job="job-1"), "resume": RESUME}
        command = supervised(node_rank=node, launch=launch, **steps)
        command[command.index("first")] = "127.0.0.1"
        given = {
            "PATH": PATH,
            "OMP_NUM_THREADS": "1",
            variables.RUN_DIR: str(self.folder / "run"),
            variables.ATTEMPT: "1",
            variables.RESULT_FILE: str(self.folder / f"result-{node}"),
            **environ,
        }
        with (self.folder / f"log-{node}").open("wb") as log:
            return subprocess.Popen(command, env={**os.environ, **given}, stdout=log, stderr=subprocess.STDOUT)

    def codes(self) -> list[int]:
        """Exit codes of the nodes."""
        return [node.wait(timeout=120) for node in self.nodes]

    def log(self, node: int = 0) -> str:
        return (self.folder / f"log-{node}").read_text()

    def restarts(self, node: int = 0) -> list[str]:
        """Reasons of the restarts, as a node has printed them."""
        found = map(parse_restarted_line, self.log(node).splitlines())
        return [each.reason for each in found if each is not None]

    def rank(self, rank: int) -> int:
        """Process id of a rank that has joined the gang; 0 before."""
        file = self.folder / "run/pids" / str(rank)
        return int(file.read_text()) if file.exists() else 0

    def kill(self, rank: int, *, after_step: int = 3) -> None:
        """Kill a rank once a checkpoint of a later step exists."""
        wait_until(lambda: bool(self.rank(rank)) and self._has_step_after(after_step))
        with suppress(ProcessLookupError):
            os.kill(self.rank(rank), signal.SIGKILL)

    def _has_step_after(self, step: int) -> bool:
        checkpoints = (self.folder / "run").glob("checkpoint-*.json")
        return any(int(file.stem.rpartition("-")[2]) > step for file in checkpoints)

    def weight(self) -> str:
        return (self.folder / "run/weight").read_text()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def gang(folder: Path, *, num_nodes: int, launcher: str = "none", processes: int = 1, **environ: str) -> Iterator[Gang]:
    started = Gang(folder, num_nodes=num_nodes, launcher=launcher, processes=processes, **environ)
    try:
        yield started
    finally:
        for node in started.nodes:
            node.terminate()
        started.codes()


def undisturbed(folder: Path, *, num_ranks: int) -> str:
    """The weight of a training without restarts: it depends on the number of ranks only."""
    with gang(folder / "calm", num_nodes=num_ranks) as calm:
        assert calm.codes() == [0] * num_ranks, calm.log()
        return calm.weight()


def test_a_killed_rank_of_two_pods_costs_no_pod_and_the_weights_are_the_same(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, num_ranks=2)
    with gang(tmp_path / "killed", num_nodes=2, launcher="torchrun") as running:
        running.kill(rank=1)
        assert running.codes() == [0, 0], running.log(1)
        assert [running.restarts(node) for node in (0, 1)] == [[BY_SIGKILL]] * 2
        assert running.weight() == expected
        assert "Resuming from" in running.log()


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["torchrun", "none", "mpi"])
@pytest.mark.parametrize("num_nodes", [1, 2, 3])
@pytest.mark.parametrize("hangs", ["", "1"], ids=["notices", "hangs"])
def test_every_gang_survives_a_kill_at_a_random_moment(
    tmp_path: Path, launcher: str, num_nodes: int, hangs: str
) -> None:
    processes = 1 if launcher == "none" else 2
    choose = random.Random(f"{launcher}{num_nodes}{hangs}")
    expected = undisturbed(tmp_path, num_ranks=num_nodes * processes)
    with gang(
        tmp_path / "killed", num_nodes=num_nodes, launcher=launcher, processes=processes, MORTAL_HANGS=hangs
    ) as running:
        running.kill(choose.randrange(running.size), after_step=choose.randrange(16))
        assert running.codes() == [0] * num_nodes, running.log()
        assert running.restarts() == [BY_SIGKILL]
        assert running.weight() == expected


@pytest.mark.slow
@pytest.mark.parametrize("num_nodes", [1, 2])
def test_a_killed_torchrun_leaves_no_rank_behind(tmp_path: Path, num_nodes: int) -> None:
    expected = undisturbed(tmp_path, num_ranks=num_nodes)
    with gang(tmp_path / "killed", num_nodes=num_nodes, launcher="torchrun") as running:
        wait_until(lambda: bool(running.rank(num_nodes - 1)))
        orphan = running.rank(num_nodes - 1)
        parent = (Path("/proc") / str(orphan) / "stat").read_text().rpartition(")")[2].split()[1]
        os.kill(int(parent), signal.SIGKILL)
        assert running.codes() == [0] * num_nodes, running.log()
        assert running.weight() == expected
        wait_until(lambda: not Path(f"/proc/{orphan}").exists())


@pytest.mark.slow
def test_a_gang_restarts_twice_if_a_newer_checkpoint_lies_between(tmp_path: Path) -> None:
    expected = undisturbed(tmp_path, num_ranks=2)
    with gang(tmp_path / "killed", num_nodes=2, launcher="torchrun", MORTAL_STEPS="20") as running:
        running.kill(rank=1, after_step=3)
        wait_until(lambda: len(running.restarts()) == 1)
        running.kill(rank=0, after_step=12)
        assert running.codes() == [0, 0], running.log()
        assert running.restarts() == [BY_SIGKILL] * 2
        assert running.weight() == expected


@pytest.mark.slow
@pytest.mark.parametrize(("launcher", "num_nodes"), [("none", 1), ("torchrun", 2)])
def test_a_rank_that_always_dies_at_one_step_is_started_again_once(
    tmp_path: Path, launcher: str, num_nodes: int
) -> None:
    with gang(tmp_path, num_nodes=num_nodes, launcher=launcher, MORTAL_DIES_AT="5") as running:
        assert all(running.codes())
        assert running.restarts() == [BY_SIGKILL]


@pytest.mark.slow
@pytest.mark.parametrize("num_nodes", [1, 2])
def test_an_exception_of_the_program_is_not_restarted_in_the_pods(tmp_path: Path, num_nodes: int) -> None:
    with gang(tmp_path, num_nodes=num_nodes, launcher="torchrun", MORTAL_RAISES_AT="5") as running:
        assert all(running.codes())
        assert running.restarts() == []


@pytest.mark.slow
def test_a_killed_supervisor_ends_the_pods_of_the_others(tmp_path: Path) -> None:
    with gang(tmp_path, num_nodes=2, launcher="torchrun", MORTAL_STEPS="200") as running:
        wait_until(lambda: bool(running.rank(1)))
        orphan = running.rank(1)
        running.nodes[1].kill()
        os.kill(orphan, signal.SIGKILL)  # in a pod, the kernel ends all processes with the first one
        assert all(running.codes())
        assert running.restarts() == []


def test_a_checkpoint_of_our_own_programs_shows_that_a_round_was_useful(tmp_path: Path) -> None:
    """Their plan describes no checkpoints."""
    launch = launch_of("train.py")
    environment = read({variables.RUN_DIR: str(tmp_path)})
    node = Node(plan=Plan(launch=launch, restart=Restart(job="job-1")), environment=environment)
    rounds = restart.Rounds(node=node, added=(), start=lambda _node, _added: [])
    assert restart._is_useful(rounds)
    for step in (10, 20):
        write(tmp_path, step)
        restart._begin_round(rounds, 0, BY_SIGKILL)
        assert not restart._is_useful(rounds), "nothing is newer than at the restart"
        write(tmp_path, step + 5).record_path.unlink()
        assert not restart._is_useful(rounds), "a checkpoint without its record is not complete"
    write(tmp_path, 25)
    assert restart._is_useful(rounds)


def test_a_pod_that_is_asked_to_end_is_not_restarted(tmp_path: Path) -> None:
    with gang(tmp_path, num_nodes=1, MORTAL_STEPS="2000") as running:
        wait_until(lambda: bool(running.rank(0)))
        running.nodes[0].terminate()
        assert running.codes() == [143]
        assert running.restarts() == []
