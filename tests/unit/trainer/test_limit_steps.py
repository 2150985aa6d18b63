"""A program without a flag for its number of steps ends behind those that a precompilation needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainer.helpers.install import install

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
"""The programs run in folders of their own, and not every environment has the trainer installed."""

TRAIN = """
import sys
import torch
assert __name__ == "__main__"
weights = torch.zeros(2, requires_grad=True)
optimizer = torch.optim.{optimizer}([weights], lr=0.1)
for step in range(100):
    optimizer.zero_grad()
    (weights.sum() - 1).square().backward()
    {step}
    print("step", step, *sys.argv[1:], flush=True)
print("the end")
"""
PLAIN = TRAIN.format(optimizer="SGD", step="optimizer.step()")
STUBBORN = PLAIN.replace(
    "    optimizer.step()", "    try:\n        optimizer.step()\n    except SystemExit:\n        pass"
)


def limited(*words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "trainer.limit_steps", "--steps", "3", "--", *words]
    return subprocess.run(command, cwd=cwd, env=ENVIRONMENT, capture_output=True, text=True, timeout=120, check=False)


def steps_of(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for line in done.stdout.splitlines() if line.startswith("step")]


@pytest.mark.parametrize("words", [["train.py"], ["-m", "train"], ["folder/train.py"]], ids=" ".join)
def test_a_program_ends_behind_its_last_step_with_success(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for path in (tmp_path / "train.py", tmp_path / "folder" / "train.py"):
        path.write_text(PLAIN)
    done = limited(*words, "--lr", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert steps_of(done) == [f"step {step} --lr 1" for step in range(3)]
    assert "The program has taken 3 steps, which precompilation needs; it is ended." in done.stdout
    assert "the end" not in done.stdout


def test_a_program_that_catches_its_end_is_ended_at_the_next_step(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(STUBBORN)
    done = limited("train.py", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(steps_of(done)) == 4


def test_a_program_that_finds_its_neighbours_finds_them_here_too(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "helper.py").write_text("VALUE = 5\n")
    (tmp_path / "folder" / "train.py").write_text("import helper\nprint(helper.VALUE, __file__)\n")
    done = limited("folder/train.py", cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, "5 folder/train.py")


def test_a_program_may_have_packages_of_the_names_of_ours(tmp_path: Path) -> None:
    (tmp_path / "trainer.py").write_text("VALUE = 6\n")
    (tmp_path / "train.py").write_text("import trainer\nprint(trainer.VALUE)\n")
    install(tmp_path / "helpers", services=())
    command = [sys.executable, "helpers", "limit_steps", "--steps", "3", "--", "train.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "6"), done.stderr


def test_a_failure_is_the_programs_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("raise SystemExit(9)\n")
    assert limited("train.py", cwd=tmp_path).returncode == 9


def test_without_a_program_it_says_what_to_give(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainer.limit_steps", "--steps", "3"]
    done = subprocess.run(command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("Give the steps and the program: python -m trainer.limit_steps")
