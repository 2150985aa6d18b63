"""How long a person waits for the command: `--help` and `validate`, beside an empty Python and the libraries alone.

The runs are interleaved, so that what else the machine does falls on all of them; each figure is the median of ten.
Processor time is given beside time on the clock: it tells a slow command from a busy machine.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from benchmarks.result import BenchmarkFailed, Result, this_machine

REPOSITORY = Path(__file__).parent.parent
SPEC = REPOSITORY / "runs" / "demo.yaml"

ROUNDS = 10

COMMANDS = {
    "python": ("-c", "pass"),
    "libraries": ("-c", "import typer, rich"),
    "help": ("-m", "trainflow", "--help"),
    "validate": ("-m", "trainflow", "validate", str(SPEC)),
}


@dataclass(frozen=True)
class Times:
    """One start of a command."""

    wall_seconds: float
    cpu_seconds: float


def run() -> Result:
    """Starts each command ten times, after one start that nobody measures: it writes bytecode and fills the file cache.

    Raises:
        BenchmarkFailed: If a command fails.
    """
    for arguments in COMMANDS.values():
        measure(arguments)
    rounds = [{name: measure(arguments) for name, arguments in COMMANDS.items()} for _ in range(ROUNDS)]
    wall = {name: median(each[name].wall_seconds for each in rounds) for name in COMMANDS}
    cpu = {name: median(each[name].cpu_seconds for each in rounds) for name in COMMANDS}
    return Result(
        benchmark="cli",
        ratios={name: round(cpu[name] / cpu["libraries"], 2) for name in ("help", "validate")},
        seconds={
            "wall": {name: round(seconds, 3) for name, seconds in wall.items()},
            "cpu": {name: round(seconds, 3) for name, seconds in cpu.items()},
        },
        machine=this_machine(),
        details={"rounds": ROUNDS, "ratios": "processor time over that of `import typer, rich`"},
    )


def measure(arguments: Sequence[str]) -> Times:
    """Starts Python with these arguments, from its start to its end.

    Raises:
        BenchmarkFailed: If it does not end with status 0.
    """
    before, began = _children_cpu(), time.perf_counter()
    done = subprocess.run([sys.executable, *arguments], cwd=REPOSITORY, capture_output=True, text=True, check=False)
    times = Times(wall_seconds=time.perf_counter() - began, cpu_seconds=_children_cpu() - before)
    if done.returncode != 0:
        raise BenchmarkFailed(f"{' '.join(arguments)} ended with {done.returncode}: {done.stderr.strip()[-500:]}")
    return times


def _children_cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime
