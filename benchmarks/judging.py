"""Measures what the judging of requests costs a run: one run in the twin with and without it, in turns.

Without it nothing checks signatures, policies and trust policies; with it everything does, as always. The run is a gang
of two that logs steps: what a program computes would hide the difference. CPU time is that of the command's process,
which includes the twin's AWS. It is more reliable than wall time on a busy machine.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

from benchmarks.fault_runs import steps
from benchmarks.overhead import REPOSITORY, measure_seconds
from benchmarks.result import Result, this_machine

ROUNDS, NUM_STEPS = 3, 15
WITH, WITHOUT = "with", "without"


def run() -> Result:
    """Runs once to fill the machine's caches, and then three times each way.

    Raises:
        BenchmarkFailed: If a run does not succeed.
    """
    found: dict[str, list[dict[str, float]]] = {WITH: [], WITHOUT: []}
    with tempfile.TemporaryDirectory(prefix="trainflow-judging-") as folder:
        (Path(folder) / "spec.yaml").write_text(yaml.safe_dump(steps(max_steps=NUM_STEPS, seconds_per_step=0.2)))
        _measured(Path(folder), WITH)
        for _ in range(ROUNDS):
            for way in (WITHOUT, WITH):
                found[way].append(_measured(Path(folder), way))
    return summary(found, this_machine())


def summary(found: dict[str, list[dict[str, float]]], machine: dict[str, Any]) -> Result:
    """Both ways side by side, by the medians of their rounds."""
    medians = {
        way: {name: round(statistics.median(each[name] for each in rounds), 2) for name in rounds[0]}
        for way, rounds in found.items()
    }
    names = medians[WITH]
    return Result(
        benchmark="judging",
        ratios={f"{name}_with_to_without": round(medians[WITH][name] / medians[WITHOUT][name], 3) for name in names},
        seconds={"medians": medians, "rounds": found},
        machine=machine,
    )


def _measured(folder: Path, way: str) -> dict[str, float]:
    usage = folder / "usage.json"
    command = [sys.executable, "-m", "benchmarks.judging", way, str(usage), str(folder)]
    wall_seconds = measure_seconds(command, f"benchmarks.judging {way}")
    cpu: float = json.loads(usage.read_text())
    return {"wall": round(wall_seconds, 2), "cpu": round(cpu, 2)}


def _run_command(way: str, usage: Path, folder: Path) -> None:
    """`trainflow run`, in this process, with or without the judge; leaves its CPU seconds in a file."""
    from local.aws.access import entrance, guard, trusts
    from trainflow.cli.main import app

    if way == WITHOUT:
        for part, install in ((entrance, _let_in), (trusts, _let_in), (guard, _let_everyone_in)):
            setattr(part, "install", install)  # noqa: B010 (mypy compares names of parameters)
    try:
        spec, places = str(folder / "spec.yaml"), ("--home", str(folder / "home"), "--out", str(folder / "out"))
        app(["run", spec, "--local", "--no-page", "--image-root", str(REPOSITORY), *places])
    finally:
        used = resource.getrusage(resource.RUSAGE_SELF)
        usage.write_text(json.dumps(used.ru_utime + used.ru_stime))


def _let_in(_guard: object) -> None:
    """Nothing is judged."""


def _let_everyone_in(_guard: object) -> None:
    """Behave as moto without the judge, except for policies of buckets, which moto reads in its own way."""
    from moto.iam.access_control import PermissionResult
    from moto.s3.models import FakeBucket
    from moto.s3.responses import S3Response

    from local.aws.replacements import replace

    replace(FakeBucket, "get_permission", lambda *_arguments: PermissionResult.PERMITTED)
    replace(S3Response, "_authenticate_and_authorize_s3_action", lambda *_arguments, **_named: None)


if __name__ == "__main__":
    _run_command(sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3]))
