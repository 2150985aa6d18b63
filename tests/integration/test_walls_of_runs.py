"""A run whose pods have walls: its program has the user, the root file system and the mounts of a pod in a cluster."""

from __future__ import annotations

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


def test_a_program_writes_into_its_runs_folder_and_nowhere_else(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    command = [sys.executable, "-m", "trainflow", "run", "spec.yaml", "--local", "--time-scale", "60", "--walls"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    record = RunRecord.model_validate_json((tmp_path / "out/latest/run.json").read_text())
    assert record.status == "SUCCEEDED"
    assert (tmp_path / f".trainflow/volumes/runs/{record.run_id}/mine").read_text() == record.run_id
    assert "their user, root file system and mounts" in " ".join(done.stdout.split())
