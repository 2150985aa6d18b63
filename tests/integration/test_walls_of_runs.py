"""A run whose pods have walls: its program has the user, the root file system and the mounts of a pod in a cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetwin.node.walls import machine_has_walls

from trainflow.models.run_record import RunRecord

pytestmark = pytest.mark.skipif(not machine_has_walls(), reason="this machine gives its users no namespaces")

PROGRAM = """
import os
import tempfile

assert (os.getuid(), os.getgid()) == (1000, 1000), os.getuid()
run = os.environ["TRAINFLOW_RUN_ID"]
for folder in ("/", "/etc", "/data", "/runs", "/cache", os.path.dirname(__file__)):
    try:
        open(f"{folder}/{run}", "w")
    except OSError:
        continue
    raise SystemExit(f"{folder} can be written")
open(f"/runs/{run}/mine", "w").write(run)
with tempfile.NamedTemporaryFile(dir="/tmp"), tempfile.NamedTemporaryFile(dir="/dev/shm"):
    print("behind walls")
"""
SPEC: dict[str, Any] = {
    "version": 1,
    "name": "walls",
    "workload": {"script": "train.py", "image": "pytorch/pytorch:2.13.0"},
    "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 1, "processes_per_node": 1, "check_nodes": False},
    "precompile": {"enabled": False},
}


def run(folder: Path, program: str, *options: str) -> tuple[RunRecord, str]:
    """The record of a run of a program, and what its command said."""
    (folder / "train.py").write_text(program)
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    command = [sys.executable, "-m", "trainflow", "run", "spec.yaml", "--local", "--time-scale", "60", *options]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    record = RunRecord.model_validate_json((folder / "out/latest/run.json").read_text())
    assert record.status == "SUCCEEDED"
    return record, " ".join(done.stdout.split())


def test_a_program_writes_into_its_runs_folder_and_nowhere_else(tmp_path: Path) -> None:
    record, said = run(tmp_path, PROGRAM)
    assert (tmp_path / f".trainflow/volumes/runs/{record.run_id}/mine").read_text() == record.run_id
    assert "their user, root file system and mounts" in said


def test_walls_can_be_left_out_and_the_run_says_what_it_does_not_prove_then(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    _, said = run(tmp_path, f"import os; open({str(outside)!r}, 'w').write(str(os.getuid()))", "--no-walls")
    assert outside.read_text() == str(os.getuid())
    assert "This run does not show whether their user ids, read-only file systems, mounts and images work" in said
