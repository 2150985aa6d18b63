"""Measures the recovery from a killed rank: from the kill to the first new step, at time scale 1.

The supervisors of a gang of two pods run on this machine as they do in pods. Beside them, plain `torchrun
--max-restarts` starts the same program with as many ranks on one node. Trials alternate, so that other load meets both.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.result import BenchmarkFailed, Result, this_machine
from trainflow.protocol.plan import Launch, Plan, Restart, to_words

TRIALS = 5
PROGRAM = Path(__file__).parent / "recovered_program.py"
PARTS = ("until_imported", "until_loaded", "until_new_step")
TRIAL_SECONDS = 180.0


def run() -> Result:
    """Kills a rank several times under each launcher.

    Raises:
        BenchmarkFailed: If a training does not end, or if its weight is not that of a calm one.
    """
    choose = random.Random(99)  # noqa: S311  (moments of kills)
    found: dict[str, list[dict[str, float]]] = {"in_pods": [], "torchrun": []}
    weights: set[str] = set()
    for _ in range(TRIALS):
        step, rank = choose.randrange(5, 40), choose.randrange(2)
        for name, trials in found.items():
            with tempfile.TemporaryDirectory(prefix="trainflow-recovery-") as folder:
                trials.append(_trial(name, Path(folder), step=step, rank=rank))
                weights.add(_weight(Path(folder)))
    with tempfile.TemporaryDirectory(prefix="trainflow-recovery-") as folder:
        _ended(_started("torchrun", Path(folder)))
        weights.add(_weight(Path(folder)))
    if len(weights) != 1:
        raise BenchmarkFailed(f"The weights of the trials differ: {sorted(weights)}.")
    return summary(found, this_machine())


def summary(found: Mapping[str, Sequence[Mapping[str, float]]], machine: Mapping[str, Any]) -> Result:
    """Medians of the trials, by launcher and part."""
    seconds = {
        name: {part: round(median(trial[part] for trial in trials), 2) for part in (*PARTS, "total")}
        for name, trials in found.items()
    }
    return Result(
        benchmark="recovery",
        ratios={"in_pods_to_torchrun": round(seconds["in_pods"]["total"] / seconds["torchrun"]["total"], 2)},
        seconds=seconds,
        machine=machine,
        details={"trials": TRIALS, "same_weights": True},
    )


def _trial(name: str, folder: Path, *, step: int, rank: int) -> dict[str, float]:
    """Kill a rank after a step; seconds of each part."""
    processes = _started(name, folder)
    deadline = time.monotonic() + TRIAL_SECONDS
    while not any(said.get("step") == step for said in _said(folder)):
        if time.monotonic() > deadline:
            raise BenchmarkFailed(f"The training under {name} did not come to step {step}.")
        time.sleep(0.01)
    killed_at = time.time()
    os.kill(int((folder / f"rank-{rank}").read_text()), signal.SIGKILL)
    _ended(processes)
    return recovery_parts(_said(folder), killed_at)


def recovery_parts(said: Sequence[Mapping[str, Any]], killed_at: float) -> dict[str, float]:
    """The parts of a recovery, by the lines of rank 0."""
    before = max(line["step"] for line in said if line["event"] == "step" and line["at"] <= killed_at + 0.01)
    starts = [line["at"] for line in said if line["event"] == "imported" and line["at"] > killed_at]
    if not starts:
        raise BenchmarkFailed("The program was not started again.")
    loaded = next(line["at"] for line in said if line["event"] == "loaded" and line["at"] > starts[-1])
    new = next(line["at"] for line in said if line["at"] > loaded and line.get("step", 0) > before)
    times = [killed_at, starts[-1], loaded, new]
    parts = (later - earlier for earlier, later in pairwise(times))
    return {**dict(zip(PARTS, parts, strict=True)), "total": new - killed_at}


def _started(name: str, folder: Path) -> list[subprocess.Popen[bytes]]:
    port = _free_port()
    if name == "torchrun":
        words = ["--nnodes", "1", "--nproc_per_node", "2", "--master_addr", "127.0.0.1", "--master_port", str(port)]
        command = [
            sys.executable,
            "-m",
            "torch.distributed.run",
            *words,
            "--max_restarts",
            "3",
            str(PROGRAM),
            str(folder),
        ]
        return [_process(command, folder, node=0)]
    launch = Launch(launcher="torchrun", num_nodes=2, processes=1, port=port, program=(str(PROGRAM), str(folder)))
    plan = to_words(Plan(launch=launch, restart=Restart(job="job")))
    place = [[sys.executable, "-m", "trainer.supervisor", "--node_rank", str(node)] for node in range(2)]
    return [
        _process([*words, "--master_addr", "127.0.0.1", "--", *plan], folder, node=node)
        for node, words in enumerate(place)
    ]


def _process(command: Sequence[str], folder: Path, *, node: int) -> subprocess.Popen[bytes]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environ = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1", "TRAINFLOW_RUN_DIR": str(folder)}
    with (folder / f"out-{node}").open("wb") as out, (folder / f"err-{node}").open("wb") as errors:
        return subprocess.Popen(command, cwd=Path(__file__).parent.parent, env=environ, stdout=out, stderr=errors)


def _ended(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    try:
        codes = [process.wait(TRIAL_SECONDS) for process in processes]
    except subprocess.TimeoutExpired as error:
        for process in processes:
            process.terminate()
        raise BenchmarkFailed("A training did not end.") from error
    if any(codes):
        raise BenchmarkFailed(f"A training ended with exit codes {codes}.")


def _said(folder: Path) -> list[dict[str, Any]]:
    lines = (folder / "out-0").read_text().splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"event"') and line.endswith("}")]


def _weight(folder: Path) -> str:
    return str(json.loads((folder / "checkpoint.json").read_text())["weight"])


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
