"""The examples run in the twin by the command of their README, as programs that know nothing of Trainflow."""

from __future__ import annotations

import ast
import json
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import psutil
import pytest
import yaml

from tests.integration.test_stranger import git

EXAMPLES = Path(__file__).parents[2] / "examples"

LAST_STEPS = {"ddp": 400, "hugging_face": 30, "lightning": 159, "llama_fsdp2": 60, "numpy": 500}
"""The last logged step of every example."""

DEADLINE_SECONDS = 600
"""Far above what a run takes, since other tests may use the same processors."""

TUTORIAL = """
import argparse
import time

parser = argparse.ArgumentParser()
parser.add_argument("--max_steps", type=int)
parser.add_argument("--print_grad_norm", default=False, action="store_true")
flags = parser.parse_args()
for step in range(1, flags.max_steps + 1):
    norm = f"grad-norm : {2 / step}" if flags.print_grad_norm else ""
    print(
        f"LOG {time.asctime()} - (0, {step}) step_loss : {11 / step:.4f} "
        f"learning_rate : {step * 2e-7:.2e} throughput : {6449.36:.2f} {norm}",
        flush=True,
    )
"""
"""Prints both forms of the tutorial's log line, with the same flag (aws-neuron-samples, torch-neuronx/training/
dp_bert_hf_pretrain/dp_bert_large_hf_pretrain_hdf5.py, `Logger.log`). test_tutorial_script.py runs the script itself."""


class Ran(NamedTuple):
    """What a successful run leaves."""

    record: dict[str, Any]
    steps: list[dict[str, Any]]
    """Logged steps, by the columns of `steps.json`."""
    report: str
    folder: Path
    printed: str
    """Standard output of the command."""


def command(spec: str, *options: str) -> list[str]:
    """The command of `examples/README.md`."""
    return [sys.executable, "-m", "trainflow", "run", spec, "--local", *options]


def left_by(folder: Path, status: int, printed: str, complaint: str = "") -> Ran:
    """The record of the only run in a folder, which has to have succeeded."""
    assert status == 0, (printed + complaint)[-5000:]
    record = json.loads((folder / "out/latest/run.json").read_text())
    artifacts = folder / ".trainflow/s3/trainflow-artifacts/runs" / record["run_id"]
    table = json.loads((artifacts / "steps.json").read_text())
    steps = [dict(zip(table["columns"], row, strict=True)) for row in table["steps"]]
    return Ran(record, steps, (folder / "out/latest/report.html").read_text(), folder / "out/latest", printed)


def run(folder: Path, spec: str, *options: str) -> Ran:
    done = subprocess.run(
        command(spec, *options), cwd=folder, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS
    )
    return left_by(folder, done.returncode, done.stdout, done.stderr)


def copied(name: str, folder: Path) -> str:
    """The spec of a copied example, relative to the folder; its run leaves nothing in the repository."""
    shutil.copytree(EXAMPLES / name, folder / name)
    return f"{name}/spec.yaml"


def curve(report: str) -> tuple[int, int] | None:
    """First and last step of the report's curve of the loss."""
    found = re.search(r'aria-label="Loss from \S+ at step ([\d,]+) to \S+ at step ([\d,]+);', report)
    return (int(found[1].replace(",", "")), int(found[2].replace(",", ""))) if found else None


def test_the_examples_import_nothing_of_trainflow() -> None:
    for path in EXAMPLES.rglob("*.py"):
        nodes = list(ast.walk(ast.parse(path.read_text())))
        imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
        assert not {name.split(".")[0] for name in imported} & {"trainer", "trainflow", "lambdas", "local"}, path


def test_every_example_is_in_the_table_and_in_these_tests() -> None:
    names = sorted(path.parent.name for path in EXAMPLES.glob("*/spec.yaml"))
    assert names == sorted(LAST_STEPS)
    table = (EXAMPLES / "README.md").read_text()
    assert sorted(re.findall(r"^\| \[`(\w+)/`\]", table, re.M)) == names


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(LAST_STEPS))
def test_an_example_ends_with_its_curve_and_checkpoint(name: str, tmp_path: Path) -> None:
    ran = run(tmp_path, copied(name, tmp_path))
    training = ran.record["training"]
    assert (ran.record["status"], ran.record["error"], ran.record["warnings"]) == ("SUCCEEDED", None, [])
    assert ran.steps[-1]["step"] == LAST_STEPS[name]
    assert [step["step"] for step in ran.steps] == sorted({step["step"] for step in ran.steps})
    assert training["last_loss"] < training["first_loss"]
    published = ran.record["metrics_published"]
    assert (published["gaps"], published["duplicates"]) == (0, 0)
    first = next(step["step"] for step in ran.steps if step["loss"] is not None)  # Lightning writes hp_metric at step 0
    assert curve(ran.report) == (first, LAST_STEPS[name])
    assert training["checkpoint"]


@pytest.mark.slow
def test_a_killed_example_resumes_from_its_checkpoint(tmp_path: Path) -> None:
    spec = copied("ddp", tmp_path)
    (tmp_path / "longer.yaml").write_text(
        yaml.safe_dump({"workload": {"arguments": {"steps": 1200}}, "limits": {"restart_in_place": False}})
    )
    kept: list[int] = []

    def kill_one_worker() -> bool:
        """Kill rank 3 as soon as there is a checkpoint; whether it was killed."""
        for path in tmp_path.glob(".trainflow/volumes/runs/*/ckpt/step_100.pt"):
            for process in workers_of(path.parents[1].name, rank=3):
                kept.extend(checkpoints(path.parent))
                process.kill()
                return True
        return False

    ran = left_by(tmp_path, *run_while(command(spec, "--override", "longer.yaml"), tmp_path, kill_one_worker))

    assert kept, "no worker was killed"
    first, second = logged_by_rank0(ran)
    resumed = [int(number) for number in re.findall(r"^.*resumed from \S+ at step (\d+)$", second, re.M)]
    before, after = steps_in(first), steps_in(second)
    assert len(resumed) == 1
    assert resumed[0] >= max(kept)
    assert before[0] == 10
    assert (after[0], after[-1]) == (resumed[0] + 10, 1200), "steps up to the checkpoint are not repeated"
    assert all(later - earlier == 10 for earlier, later in pairwise(after))
    assert [step["step"] for step in ran.steps] == sorted({step["step"] for step in ran.steps})
    assert curve(ran.report) == (10, 1200)


@pytest.mark.slow
def test_a_killed_hugging_face_trainer_resumes_from_its_own_checkpoint(tmp_path: Path) -> None:
    spec = copied("hugging_face", tmp_path)
    (tmp_path / "longer.yaml").write_text(
        yaml.safe_dump({"workload": {"arguments": {"max_steps": 40}}, "limits": {"restart_in_place": False}})
    )
    kept: list[int] = []

    def kill_one_worker() -> bool:
        """Kill rank 1 as soon as there is a checkpoint; whether it was killed."""
        for path in tmp_path.glob(".trainflow/volumes/runs/*/checkpoint-10/trainer_state.json"):
            for process in workers_of(path.parents[1].name, rank=1):
                kept.extend(int(each.name.removeprefix("checkpoint-")) for each in folders_of(path.parents[1]))
                process.kill()
                return True
        return False

    ran = left_by(tmp_path, *run_while(command(spec, "--override", "longer.yaml"), tmp_path, kill_one_worker))

    assert kept, "no worker was killed"
    first, second = [log.count("{'loss':") for log in logs_of_node_0(ran)]
    resumed = 40 - second * 5
    assert max(kept) <= resumed < 40, "the second gang began with the newest checkpoint of the first"
    assert first * 5 >= resumed
    (last,) = (tmp_path / ".trainflow/s3/trainflow-artifacts/runs").glob("*/checkpoint-40/trainer_state.json")
    history = [entry["step"] for entry in json.loads(last.read_text())["log_history"] if "loss" in entry]
    assert history == list(range(5, 41, 5)), "no step is missing and none is there twice"
    assert [step["step"] for step in ran.steps] == sorted({step["step"] for step in ran.steps})


def folders_of(run_dir: Path) -> list[Path]:
    """Complete checkpoints of the Trainer."""
    return [path.parent for path in run_dir.glob("checkpoint-*/trainer_state.json")]


def logs_of_node_0(ran: Ran) -> list[str]:
    """The logs of the training's first node, in the order of the attempts."""
    return [path.read_text() for path in sorted((ran.folder / "logs").glob("*-training-*-0-*.log"))]


def workers_of(run_id: str, *, rank: int) -> list[psutil.Process]:
    """Python processes of a run's training with a rank; torchrun's agents have none."""
    found = []
    for process in psutil.process_iter():
        try:
            environ = process.environ()
        except psutil.Error:
            continue
        if (environ.get("TRAINFLOW_RUN_ID"), environ.get("RANK")) == (run_id, str(rank)):
            found.append(process)
    return found


def checkpoints(folder: Path) -> list[int]:
    return [int(path.stem.removeprefix("step_")) for path in folder.glob("step_*.pt")]


def run_while(words: list[str], folder: Path, try_once: Callable[[], bool]) -> tuple[int, str]:
    """Exit status and output of a command, beside which something is tried until it is done."""
    over = threading.Event()

    def poll() -> None:
        while not over.wait(0.1) and not try_once():
            pass

    beside = threading.Thread(target=poll)
    beside.start()
    try:
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS)
    finally:
        over.set()
        beside.join()
    return done.returncode, done.stdout + done.stderr


def logged_by_rank0(ran: Ran) -> list[str]:
    """The logs of rank 0's pods, in the order of their starts."""
    logs = [path.read_text() for path in sorted((ran.folder / "logs").glob("*-training-*-0-*.log"))]
    return sorted((log for log in logs if steps_in(log)), key=lambda log: steps_in(log)[0])


def steps_in(log: str) -> list[int]:
    return [int(step) for step in re.findall(r"\bstep=(\d+) ", log)]


@pytest.mark.slow
def test_a_stranger_needs_three_commands_from_clone_to_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = tmp_path / "origin"
    origin.mkdir()
    shutil.copy(EXAMPLES / "ddp/train.py", origin)
    git(origin, "init", "--quiet")
    git(origin, "add", "--all")
    git(origin, "commit", "--quiet", "--message", "A plain DDP project")
    clone = tmp_path / "clone"
    commands = [
        ["git", "clone", "--quiet", str(origin), str(clone)],
        [sys.executable, "-m", "trainflow", "init", "--from", "train.py"],
        command("spec.yaml"),
    ]

    begin = time.monotonic()
    for words in commands:
        folder = clone if clone.exists() else tmp_path
        done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False, timeout=DEADLINE_SECONDS)
        assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    seconds = time.monotonic() - begin

    assert len(commands) <= 3
    assert curve((clone / "out/latest/report.html").read_text()) == (10, 400)
    with capsys.disabled():
        print(f"\nFrom git clone to the curve: {len(commands)} commands, {seconds:.0f} s (goal: 3 commands, 180 s).")


@pytest.mark.slow
@pytest.mark.parametrize("print_grad_norm", [False, True])
def test_both_log_lines_of_the_tutorials_script_are_read(tmp_path: Path, print_grad_norm: bool) -> None:
    (tmp_path / "dp_bert.py").write_text(TUTORIAL)
    spec = {
        "version": 1,
        "name": "tutorial",
        "workload": {
            "script": "dp_bert.py",
            "code": ".",
            "image": "python:3.13-slim",
            "launcher": "none",
            "arguments": {"max_steps": 20, "print_grad_norm": print_grad_norm},
            "shared_memory_gib": 1,
        },
        "compute": {"instance_type": "c7i.xlarge", "num_nodes": 1, "processes_per_node": 1},
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    ran = run(tmp_path, "spec.yaml")
    assert [(step["step"], step["loss"]) for step in ran.steps] == [(n, round(11 / n, 4)) for n in range(1, 21)]
    assert {step["throughput"] for step in ran.steps} == {6449.36}
    assert ran.record["training"]["last_metrics"] == ({"grad_norm": 0.1} if print_grad_norm else {})
