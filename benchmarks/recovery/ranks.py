"""A rank is killed under the supervisors of a gang, and under plain `torchrun --max-restarts`.

The supervisors of a gang of two pods run on this machine as they do in pods. torchrun starts the same program with as
many ranks on one node. Trials alternate, so that other load meets both.
"""

from __future__ import annotations

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from benchmarks.recovery.parts import NotRecovered, Trials, read_events, recovery_parts, weight
from benchmarks.result import BenchmarkFailed
from trainflow.protocol.plan import Launch, Plan, Restart, to_words

STEPS = 60
REPOSITORY = Path(__file__).parents[2]
PROGRAM = Path(__file__).parent / "program.py"
TRIAL_SECONDS = 90.0
"""Longest trial; one takes about 20 seconds. A training that has not ended by then has not recovered."""

IN_PODS, BY_TORCHRUN = LAUNCHERS = ("in the pods", "torchrun --max-restarts")


def kill_ranks(number: int, *, steps: int = STEPS) -> dict[str, Trials]:
    """Kill a rank in each of a number of trainings under each launcher, at the same steps.

    Args:
        number: Trials of each launcher.
        steps: Steps of a training.

    Raises:
        BenchmarkFailed: If a training does not begin.
    """
    choose = random.Random(99)  # noqa: S311  (moments of kills)
    found = {name: Trials() for name in LAUNCHERS}
    for _ in range(number):
        step, rank = choose.randrange(steps // 12, steps * 2 // 3), choose.randrange(2)
        for name, trials in found.items():
            _try(name, trials, step=step, rank=rank, steps=steps)
    return found


def calm_weight(*, steps: int = STEPS) -> str:
    """The weight of a training without a kill.

    Raises:
        BenchmarkFailed: If it does not end well.
    """
    with _started(BY_TORCHRUN, steps=steps) as (folder, processes):
        if not _has_ended_well(processes):
            raise BenchmarkFailed("The training without a kill has failed.")
        return weight(folder)


def _try(name: str, trials: Trials, *, step: int, rank: int, steps: int) -> None:
    with _started(name, steps=steps) as (folder, processes):
        _await_step(folder, step, name)
        killed_at = time.time()
        _kill_rank(processes, rank)
        has_ended_well = _has_ended_well(processes)
        try:
            parts = recovery_parts(read_events(folder), killed_at)
        except NotRecovered:
            has_ended_well = False
        if not has_ended_well:
            trials.not_recovered += 1
            return
        trials.recovered.append(parts)
        trials.weights.add(weight(folder))


@contextmanager
def _started(name: str, *, steps: int) -> Iterator[tuple[Path, list[psutil.Popen]]]:
    """Run the processes of a launcher inside the block, and then end them with their descendants."""
    with tempfile.TemporaryDirectory(prefix="trainflow-recovery-") as folder:
        processes = [_process(words, Path(folder), node) for node, words in enumerate(_commands(name, folder, steps))]
        try:
            yield Path(folder), processes
        finally:
            for process in _with_descendants(processes):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            for process in processes:
                process.wait()


def _commands(name: str, folder: str, steps: int) -> list[list[str]]:
    port = _free_port()
    if name == BY_TORCHRUN:
        words = ["--nproc_per_node", "2", "--master_addr", "127.0.0.1", "--master_port", str(port)]
        return [["-m", "torch.distributed.run", *words, "--max_restarts", "3", str(PROGRAM), "--steps", str(steps)]]
    launch = Launch(
        launcher="torchrun", num_nodes=2, processes=1, port=port, program=(str(PROGRAM), "--steps", str(steps))
    )
    plan = to_words(Plan(launch=launch, restart=Restart(job="job")))
    place = ["--master_addr", "127.0.0.1", "--", *plan]
    return [["-m", "trainer.supervisor", "--node_rank", str(node), *place] for node in range(2)]


def _process(words: Sequence[str], folder: Path, node: int) -> psutil.Popen:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environ = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "TRAINFLOW_RUN_DIR": str(folder)}
    with (folder / f"log-{node}").open("wb") as log:
        return psutil.Popen(
            [sys.executable, *words],
            cwd=REPOSITORY,
            env=environ,
            stdout=log,
            stderr=subprocess.STDOUT,
        )


def _await_step(folder: Path, step: int, name: str) -> None:
    deadline = time.monotonic() + TRIAL_SECONDS
    while not any(said.get("step") == step for said in read_events(folder)):
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"The training under {name} did not come to step {step}.")
        time.sleep(0.01)


def _kill_rank(processes: Sequence[psutil.Popen], rank: int) -> None:
    for process in _with_descendants(processes):
        with suppress(psutil.NoSuchProcess):
            if process.environ().get("RANK") == str(rank):
                process.send_signal(signal.SIGKILL)


def _with_descendants(processes: Sequence[psutil.Popen]) -> list[psutil.Process]:
    found: list[psutil.Process] = []
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            found += [process, *process.children(recursive=True)]
    return found


def _has_ended_well(processes: Sequence[psutil.Popen]) -> bool:
    deadline = time.monotonic() + TRIAL_SECONDS
    try:
        return not any(process.wait(max(0.1, deadline - time.monotonic())) for process in processes)
    except (subprocess.TimeoutExpired, psutil.TimeoutExpired):
        return False


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
