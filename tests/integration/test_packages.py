"""Required packages, end to end: conflicts are refused before nodes, and runs share what is installed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.packages_index import index, project

pytestmark = pytest.mark.slow

TRAIN = """
import fine
import importlib.metadata
import mine
import torch
print("versions", fine.version, mine.built, importlib.metadata.version("torch"), torch.__version__, flush=True)
"""


def spec(**workload: Any) -> dict[str, Any]:
    program = {"script": "train.py", "code": ".", "image": "pytorch/pytorch:2.13.0", "launcher": "none"}
    return {
        "version": 1,
        "name": "packages",
        "workload": {**program, "requirements": "requirements.txt", **workload},
        "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 1, "processes_per_node": 1, "check_nodes": False},
        "precompile": {"enabled": False},
    }


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    project(folder, "mine")
    (folder / "train.py").write_text(TRAIN)
    index(
        folder / "index",
        ("fine", "1.0", "torch>=1"),
        ("vision", "1.0", "torch>=2.14"),
        ("torch", "2.14.1", None),
        ("unasked", "1.0", None),
    )
    return folder


def run(folder: Path, requirements: str, **workload: Any) -> tuple[int, dict[str, Any], str]:
    """Run a program; the exit code, the record and all logs of pods."""
    (folder / "requirements.txt").write_text(f"--no-index\n--find-links index\n{requirements}\n")
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec(**workload)))
    command = [sys.executable, "-m", "trainflow", "run", "spec.yaml", "--local", "--time-scale", "60"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    record = json.loads((folder / "out/latest/run.json").read_text())
    logs = "".join(path.read_text() for path in sorted((folder / "out/latest/logs").glob("*.log")))
    return done.returncode, record, done.stdout + done.stderr + logs


def test_runs_share_packages_and_install_them_once(code: Path) -> None:
    outputs = []
    for text in ("-e .\nfine\ntorch", "fine\ntorch>=2\n-e ."):
        code_of_exit, record, output = run(code, text)
        assert (code_of_exit, record["status"]) == (0, "SUCCEEDED"), output[-3000:]
        assert "versions 1.0 True 2." in output
        outputs.append(output)
    cache = code / ".trainflow/volumes/cache"
    (shared,) = (cache / "packages").iterdir()
    assert {path.name for path in shared.glob("*.py")} == {"fine.py"}, "the image's torch is not installed again"
    assert [path.name for path in cache.glob("runs/*/packages/wheels/*")] == []
    assert len(list(cache.glob("runs/*/packages/*/mine/__init__.py"))) == 2, "a project is each run's own"


def test_a_conflict_with_the_image_is_refused_before_nodes_are_requested(code: Path) -> None:
    code_of_exit, record, output = run(code, "fine\nvision")
    assert (code_of_exit, record["status"]) != (0, "SUCCEEDED")
    assert "requirements.txt line 4: vision 1.0 needs torch>=2.14, but the image has torch 2." in output
    assert record["error"]["name"] == "CodeInvalid"
    visited = {each["name"] for each in record["states"]}
    assert "Preflight" in visited
    assert not {"EnsureCapacity", "SubmitTraining", "StageData"} & visited


def test_a_package_that_the_spec_names_is_replaced(code: Path) -> None:
    (code / "train.py").write_text("import torch\nprint('version', torch.version)\n")
    code_of_exit, record, output = run(code, "vision", replace_packages=["torch"])
    assert (code_of_exit, record["status"]) == (0, "SUCCEEDED"), output[-3000:]
    assert "version 2.14.1" in output
