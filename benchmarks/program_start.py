"""Measures the start of a program in a pod, with the code of two checkouts in turn.

`python -m benchmarks.program_start BEFORE AFTER`: folders of two checkouts. Each checkout renders the command of a
training's container and installs its helpers, as the init container does. The command then runs on this machine. Wall
time ends with the program's first line; CPU seconds are those of all processes, which end right after it. The node
test is skipped, because the image lacks PyTorch.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROUNDS = 15

RENDER = """
import json, sys
from datetime import UTC, datetime
from lambdas.backends.job import render
from lambdas.logic.jobs import job_of
from trainflow.workflow.compile_cache import CacheUse, Hold
from trainflow.workflow.run import Run, Stage
from trainflow.spec.run_spec import parse_run_spec
given = json.loads(sys.argv[1])
run = Run(run_id="start-0123456789ab", execution_arn="arn:aws:states:us-west-2:123456789012:execution:a:b",
    started_at=datetime(2026, 1, 1, tzinfo=UTC), spec=parse_run_spec(given["spec"]), tools_image="tools")
cache = CacheUse(key="key", folder="key/run", hold=Hold.READ) if given["cache"] else None
job = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/", cache=cache)
print(json.dumps(render(job)[-1]["spec"]["template"]["spec"]["containers"][0]["command"]))
"""
"""Prints the command of the container, with the code of the working directory."""

HEAD = {"version": 1, "name": "start"}
PROGRAM: dict[str, Any] = {"image": "i", "command": ["echo", "started"], "launcher": "none"}
ONE_NODE = {"backend": "job", "instance_type": "c7i.xlarge", "num_nodes": 1, "processes_per_node": 1}
GANG = {"backend": "job", "instance_type": "trn1.32xlarge", "num_nodes": 2, "processes_per_node": 32}
CHECKPOINT = {"path": "step-{step}.pt", "resume": ["--resume", "{checkpoint}"]}
CODE = {"code": f"s3://artifacts/code/{'0' * 64}.tar.gz"}
CASES: dict[str, dict[str, Any]] = {
    "plain": {"spec": {**HEAD, "workload": PROGRAM, "compute": {**ONE_NODE, "check_nodes": False}}},
    "resume and progress": {
        "spec": {
            **HEAD,
            "workload": PROGRAM,
            "compute": {**ONE_NODE, "check_nodes": False},
            "checkpoint": CHECKPOINT,
            "progress": "none",
        }
    },
    "every step": {
        "spec": {
            **HEAD,
            "workload": {**PROGRAM, **CODE},
            "compute": {**GANG, "check_nodes": True},
            "checkpoint": CHECKPOINT,
            "progress": {"tensorboard": "logs"},
        },
        "cache": True,
    },
}
"""Specs of a plain program, of one with the usual helpers, and of a gang with all of them but secrets."""


def main(before: str, after: str) -> None:
    """Print the medians and their ratio for each case."""
    with tempfile.TemporaryDirectory(prefix="program-start-") as name:
        folder = Path(name)
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "image")], check=True)
        for case, given in CASES.items():
            commands = [_prepared(Path(checkout), given, folder) for checkout in (before, after)]
            rounds = [[_measured(command, folder) for command in commands] for _ in range(ROUNDS)]
            for number, unit in enumerate(("CPU seconds", "wall seconds")):
                old, new = (statistics.median(both[which][number] for both in rounds) for which in (0, 1))
                print(f"{case}: {old:.3f} → {new:.3f} {unit}, ratio {new / old:.2f}")
    print(f"load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores, {ROUNDS} rounds")


def _prepared(checkout: Path, given: dict[str, Any], folder: Path) -> list[str]:
    """The command of a checkout, with this machine's folders in place of the pod's."""
    helpers = folder / f"helpers-{checkout.resolve().name}"
    if not helpers.exists():
        installing = [sys.executable, "-m", "trainer.helpers.install", "--into", str(helpers)]
        subprocess.run(installing, cwd=checkout, stdout=subprocess.DEVNULL, check=True)
    rendering = [sys.executable, "-c", RENDER, json.dumps({"cache": False, **given})]
    done = subprocess.run(rendering, cwd=checkout, stdout=subprocess.PIPE, check=True)
    for name in ("runs", "workspace", "cache/key/run"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "cache/key/run/_READY").write_text('{"files": {}}')
    places = {
        "/trainflow/helpers": str(helpers),
        "/cache/": f"{folder}/cache/",
        "/workspace": f"{folder}/workspace",
        "$(JOB_COMPLETION_INDEX)": "0",
    }
    words: list[str] = json.loads(done.stdout)
    for place, here in places.items():
        words = [word.replace(place, here) for word in words]
    return words


def _measured(command: list[str], folder: Path) -> tuple[float, float]:
    """CPU seconds of the command, and wall seconds to its program's line."""
    environment = {
        "PATH": f"{folder / 'image/bin'}:/usr/bin:/bin",
        "PYTHONDONTWRITEBYTECODE": "1",  # a pod mounts the helpers read-only
        "TRAINFLOW_RUN_DIR": str(folder / "runs"),
        "TRAINFLOW_STAGE": "training",
    }
    before, began, until = _cpu_seconds(), time.perf_counter(), None
    with subprocess.Popen(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line == "started\n":
                until = time.perf_counter() - began
    if process.returncode or until is None:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return _cpu_seconds() - before, until


def _cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    main(*sys.argv[1:])
