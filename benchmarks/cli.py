"""Measures the time to wait for the command: `--help`, `list`, `status` and `validate`, compared with an empty Python
and the libraries of the command line.

The runs are interleaved, so that other work of the machine affects all of them; each figure is the median of ten.
Processor time is given beside wall time: it distinguishes a slow command from a busy machine.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

from benchmarks.result import BenchmarkFailed, Result, this_machine
from trainflow.client.files import write_record
from trainflow.workflow.run_record import RunRecord, RunStatus

REPOSITORY = Path(__file__).parent.parent
SPEC = REPOSITORY / "runs" / "demo.yaml"

ROUNDS = 10

RUN_ID = "demo-0123456789ab"

MEASURED = ("help", "list", "status", "validate")


def commands(out: Path) -> dict[str, Sequence[str]]:
    """Python's arguments of each measured command, by its name.

    Args:
        out: Folder of the runs' folders.
    """
    here = ("--local", "--out", str(out))
    return {
        "python": ("-c", "pass"),
        # typer itself reads values with pydantic, but only when a command is called.
        "libraries": ("-c", "import typer, rich, pydantic; from pydantic import TypeAdapter"),
        "help": ("-m", "trainflow", "--help"),
        "list": ("-m", "trainflow", "list", *here),
        "status": ("-m", "trainflow", "status", RUN_ID, *here),
        "validate": ("-m", "trainflow", "validate", str(SPEC)),
    }


@dataclass(frozen=True)
class Times:
    """One start of a command."""

    wall_seconds: float
    cpu_seconds: float


def run() -> Result:
    """Starts each command ten times, after one start that is not measured: it writes bytecode and fills the file cache.

    Raises:
        BenchmarkFailed: If a command fails.
    """
    with tempfile.TemporaryDirectory(prefix="trainflow-cli-") as folder:
        out = Path(folder) / "out"
        _leave_run(out)
        # An installed command has its bytecode; a checkout of which Python may write none would be compiled each time.
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        started = commands(out)
        for arguments in started.values():
            measure(arguments, environment)
        rounds = [{name: measure(arguments, environment) for name, arguments in started.items()} for _ in range(ROUNDS)]
    wall = {name: median(each[name].wall_seconds for each in rounds) for name in started}
    cpu = {name: median(each[name].cpu_seconds for each in rounds) for name in started}
    return Result(
        benchmark="cli",
        ratios={name: round(cpu[name] / cpu["libraries"], 2) for name in MEASURED},
        seconds={
            "wall": {name: round(seconds, 3) for name, seconds in wall.items()},
            "cpu": {name: round(seconds, 3) for name, seconds in cpu.items()},
        },
        machine=this_machine(),
        details={"rounds": ROUNDS, "ratios": "processor time over that of importing typer, rich and pydantic"},
    )


def _leave_run(out: Path) -> None:
    ended = datetime.now(UTC)
    record = RunRecord(
        run_id=RUN_ID, status=RunStatus.SUCCEEDED, spec={}, started_at=ended - timedelta(hours=1), ended_at=ended
    )
    write_record(record, out / RUN_ID / "run.json")


def measure(arguments: Sequence[str], environment: Mapping[str, str] | None = None) -> Times:
    """Starts Python with these arguments, from its start to its end.

    Args:
        arguments: Python's.
        environment: Variables; this process's own if not given.

    Raises:
        BenchmarkFailed: If it does not end with status 0.
    """
    before, began = _children_cpu(), time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False
    )
    times = Times(wall_seconds=time.perf_counter() - began, cpu_seconds=_children_cpu() - before)
    if done.returncode != 0:
        raise BenchmarkFailed(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return times


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
