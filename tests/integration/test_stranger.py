"""A project from elsewhere: cloned, given a spec, and run in the twin by the command, unchanged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.unit.trainer.test_code import wheel

PROGRAM = """
import argparse
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from net.model import make

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int)
parser.add_argument("--lr", type=float)
given = parser.parse_args()
dist.init_process_group("gloo")
model = DistributedDataParallel(make())
optimizer = torch.optim.SGD(model.parameters(), lr=given.lr)
generator = torch.Generator().manual_seed(dist.get_rank())
for epoch in range(given.epochs):
    x = torch.randn(64, 4, generator=generator)
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if dist.get_rank() == 0:
        print(f"epoch {epoch} loss {loss.item():.4f}", flush=True)
with open(f"rank{dist.get_rank()}.txt", "w") as file:
    file.write("written beside the program")
dist.destroy_process_group()
"""

SPEC: dict[str, Any] = {
    "version": 1,
    "name": "stranger",
    "workload": {
        "script": "train.py",
        "code": ".",
        "image": "pytorch/pytorch:2.13.0",
        "arguments": {"epochs": 20, "lr": 0.05},
    },
    "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2, "processes_per_node": 1, "check_nodes": False},
    "precompile": {"enabled": False},
}


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *identity, *arguments], capture_output=True, check=True)


def cloned(origin: Path, folder: Path) -> Path:
    """A clone of a folder's files, which are committed first."""
    git(origin, "init", "--quiet")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message", "A program")
    subprocess.run(["git", "clone", "--quiet", str(origin), str(folder)], check=True)
    return folder


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A clone of a repository that knows nothing of Trainflow."""
    origin = tmp_path / "origin"
    (origin / "net").mkdir(parents=True)
    (origin / "train.py").write_text(PROGRAM)
    (origin / "net/__init__.py").touch()
    (origin / "net/model.py").write_text("import torch\n\n\ndef make():\n    return torch.nn.Linear(4, 1)\n")
    return cloned(origin, tmp_path / "clone")


def run(folder: Path, spec: dict[str, Any]) -> Path:
    """Run a spec in a folder by the command; the folder of the run's record."""
    (folder / "spec.yaml").write_text(yaml.safe_dump(spec))
    command = [sys.executable, "-m", "trainflow", "run", "spec.yaml", "--local", "--time-scale", "60"]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return folder / "out/latest"


def losses(record: Path) -> list[float]:
    """What rank 0 printed."""
    logs = "".join(path.read_text() for path in (record / "logs").glob("*training*.log"))
    return [float(line.split()[-1]) for line in logs.splitlines() if " loss " in line]


def files(folder: Path) -> set[Path]:
    """Everything in a folder but what Git and the command keep there."""
    return {path for path in folder.rglob("*") if not {".git", "out", ".trainflow"} & set(path.parts)}


@pytest.mark.slow
def test_a_strangers_project_runs_as_packed_code(clone: Path) -> None:
    (clone / "wheels").mkdir()
    wheel(clone / "wheels", "demanded", "1.0")
    (clone / "requirements.txt").write_text("--no-index\n--find-links wheels\ndemanded==1.0\n")
    (clone / "train.py").write_text(f"import demanded\n{PROGRAM}")
    before = files(clone)
    record = run(clone, {**SPEC, "workload": {**SPEC["workload"], "requirements": "requirements.txt"}})
    (digest,) = (path.name.split(".")[0] for path in (clone / ".trainflow/s3/trainflow-artifacts/code").iterdir())
    code = json.loads((record / "run.json").read_text())["spec"]["workload"]["code"]
    assert code == f"s3://trainflow-artifacts/code/{digest}.tar.gz"
    (packages,) = (clone / ".trainflow/volumes/cache/packages").iterdir()
    assert (packages / "demanded.py").is_file()
    seen = losses(record)
    assert len(seen) == 20
    assert seen[-1] < seen[0]
    assert files(clone) - before == {clone / "spec.yaml"}, "the program writes into a copy of its folder"


@pytest.mark.slow
def test_without_code_the_specs_folder_stands_for_the_image(clone: Path) -> None:
    """The program writes beside itself, which is a part of the image."""
    workload = {name: value for name, value in SPEC["workload"].items() if name != "code"} | {"writable_root": True}
    assert len(losses(run(clone, {**SPEC, "workload": workload}))) == 20
