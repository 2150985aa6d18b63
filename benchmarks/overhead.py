"""Measures the overhead of the orchestration: the demo in the twin, first with nothing prepared, then with caches.

The second run finds the data set staged and the graphs compiled. Overhead is the wall time of the execution without a
running pod of the run.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.result import BenchmarkFailed, Result, this_machine
from trainflow.client.files import read_record
from trainflow.record.build import overhead_by_state
from trainflow.workflow.run_record import RunRecord, RunStatus

REPOSITORY = Path(__file__).parent.parent
SPEC = REPOSITORY / "runs" / "demo.yaml"

FIRST, SECOND = "first_run", "second_run"


@dataclass(frozen=True)
class MeasuredRun:
    """One run of the demo."""

    wall_seconds: float
    """Time from the start of the command to its end, with the twin's start."""
    record: RunRecord


def run() -> Result:
    """Runs the demo twice with a state folder of its own.

    Raises:
        BenchmarkFailed: If a run does not succeed.
    """
    with tempfile.TemporaryDirectory(prefix="trainflow-overhead-") as folder:
        runs = {name: _measure(Path(folder)) for name in (FIRST, SECOND)}
    return summary(runs[FIRST], runs[SECOND], this_machine())


def summary(first: MeasuredRun, second: MeasuredRun, machine: Mapping[str, Any]) -> Result:
    """The two runs side by side."""
    runs = {FIRST: first, SECOND: second}
    return Result(
        benchmark="overhead",
        ratios={
            "second_to_first_wall": _ratio(second.wall_seconds, first.wall_seconds),
            "second_to_first_overhead": _ratio(second.record.overhead_seconds, first.record.overhead_seconds),
            "first_overhead_to_execution": _ratio(first.record.overhead_seconds, _execution_seconds(first.record)),
            "second_overhead_to_execution": _ratio(second.record.overhead_seconds, _execution_seconds(second.record)),
        },
        seconds={name: _seconds(measured) for name, measured in runs.items()},
        machine=machine,
        details={name: _details(measured.record) for name, measured in runs.items()},
    )


def measure_seconds(command: Sequence[str], name: str) -> float:
    """Wall time of a command of the project.

    Args:
        command: With its arguments.
        name: What the message calls it.

    Raises:
        BenchmarkFailed: If it fails.
    """
    started = time.monotonic()
    finished = subprocess.run(
        command,
        cwd=REPOSITORY,
        stdin=subprocess.DEVNULL,
        stdout=sys.stderr,  # the benchmark's own output is one JSON object
        check=False,
    )
    seconds = time.monotonic() - started
    if finished.returncode != 0:
        raise BenchmarkFailed(f"'{name}' ended with exit status {finished.returncode}; see above why.")
    return seconds


def _measure(folder: Path) -> MeasuredRun:
    out = folder / "out"
    command = [str(Path(sys.executable).with_name("trainflow")), "run", str(SPEC), "--local"]
    wall_seconds = measure_seconds([*command, "--home", str(folder / "home"), "--out", str(out)], " ".join(command))
    record = read_record(out / "latest" / "run.json")
    if record.status is not RunStatus.SUCCEEDED:
        raise BenchmarkFailed(f"Run {record.run_id} ended as {record.status.value}.")
    return MeasuredRun(wall_seconds, record)


def _seconds(measured: MeasuredRun) -> dict[str, Any]:
    record = measured.record
    by_state = sorted(overhead_by_state(record).items(), key=lambda entry: -entry[1])
    return {
        "wall": round(measured.wall_seconds, 1),
        "execution": round(_execution_seconds(record), 1),
        "overhead": record.overhead_seconds,
        "overhead_by_state": {name: seconds for name, seconds in by_state if seconds > 0},
    }


def _details(record: RunRecord) -> dict[str, Any]:
    return {
        "compile_cache": record.compile.cache if record.compile else None,
        "steps": record.training.steps if record.training else None,
        "sequences_per_second": record.training.sequences_per_second if record.training else None,
    }


def _execution_seconds(record: RunRecord) -> float:
    return ((record.ended_at or record.started_at) - record.started_at).total_seconds()


def _ratio(part: float | None, whole: float | None) -> float:
    return round((part or 0.0) / whole, 3) if whole else 0.0
