"""A run whose pods have walls: its program has the user, the root file system and the mounts of a pod in a cluster."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubetwin.node.isolation import machine_can_isolate

from tests.integration import intruder
from trainflow.workflow.run_record import RunRecord

pytestmark = pytest.mark.skipif(not machine_can_isolate(), reason="this machine gives its users no namespaces")

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


def run(folder: Path, program: str, *options: str, **workload: str) -> tuple[RunRecord, str]:
    """The record of a run of a program, and what its command said. The user's home is the folder above."""
    (folder / "train.py").write_text(program)
    (folder / "spec.yaml").write_text(yaml.safe_dump({**SPEC, "workload": {**SPEC["workload"], **workload}}))
    command = [sys.executable, "-m", "trainflow", "run", "spec.yaml", "--local", "--time-scale", "60", *options]
    environment = {**os.environ, "HOME": str(folder.parent)}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    out = options[options.index("--out") + 1] if "--out" in options else "out"
    record = RunRecord.model_validate_json((folder / out / "latest/run.json").read_text())
    assert record.status == "SUCCEEDED"
    return record, " ".join(done.stdout.split())


Project = tuple[Path, RunRecord, str]


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The folder of a run whose owner lets others read new files, its record, and what its command said."""
    folder, umask = tmp_path_factory.mktemp("project"), os.umask(0o022)
    try:
        return folder, *run(folder, PROGRAM)
    finally:
        os.umask(umask)


def test_a_program_writes_into_its_runs_folder_and_nowhere_else(project: Project) -> None:
    folder, record, said = project
    assert (folder / f".trainflow/volumes/runs/{record.run_id}/mine").read_text() == record.run_id
    assert "their user, root file system and mounts" in said


def test_what_a_run_leaves_can_be_read_by_its_owner_only(project: Project) -> None:
    folder, *_ = project
    assert [oct((folder / name).stat().st_mode & 0o777) for name in ("out", ".trainflow")] == ["0o700", "0o700"]


@pytest.mark.slow
def test_walls_can_be_left_out_and_the_run_says_what_it_does_not_prove_then(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    _, said = run(tmp_path, f"import os; open({str(outside)!r}, 'w').write(str(os.getuid()))", "--no-walls")
    assert outside.read_text() == str(os.getuid())
    assert "This run does not show whether their user ids, read-only file systems, mounts and images work" in said


SECRETS = (
    *(f"{place}/{intruder.MARK}" for place in (".aws", ".ssh", ".kube", ".config/gh", ".cache/huggingface", ".docker")),
    *(f"{intruder.MARK}{name}" for name in ("", ".txt")),
    *(f".{intruder.MARK}", f"documents/{intruder.MARK}", f"project/.git/{intruder.MARK}"),
    *(f"project/out/earlier/{intruder.MARK}", f"project/.trainflow/secrets/{intruder.MARK}"),
)
"""Files in the home folder of the user whose run is started in its folder `project`."""


@pytest.mark.slow
def test_a_program_that_takes_what_it_can_gets_nothing_in_a_first_run_and_with_packed_code_in_a_second(
    tmp_path: Path,
) -> None:
    for name in SECRETS:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(intruder.MARK)
    folder = tmp_path / "project"
    data_set = folder / ".trainflow/s3/inputs/set"
    data_set.parent.mkdir(parents=True)
    data_set.write_text("a data set")
    for workload in ({}, {"code": "."}):
        record, _ = run(folder, Path(intruder.__file__).read_text(), **workload)
        got = json.loads((folder / f".trainflow/volumes/runs/{record.run_id}/got.json").read_text())
        assert {attempt: found for attempt, found in got.items() if found} == {}


@pytest.mark.slow
def test_a_run_goes_well_in_a_long_path_with_spaces_and_letters_of_any_language_behind_a_link(tmp_path: Path) -> None:
    real = tmp_path / ("Versuche für später " + 60 * "x") / (100 * "y")
    real.mkdir(parents=True)
    (tmp_path / "link").symlink_to(real)
    assert len(str(real)) > 200
    record, _ = run(tmp_path / "link", PROGRAM, "--out", "my out", "--home", "my home")
    assert (real / f"my home/volumes/runs/{record.run_id}/mine").read_text() == record.run_id
