"""The commands of the documents that start, follow and end runs, typed as they are written there."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from local.twin import REPOSITORY
from tests.integration.commands import Commands, until
from tests.integration.test_operate import DOCUMENTED_OF_LAPTOPS, READ
from tests.waiting import PATIENCE
from trainflow.client.grid import GRID_ID

PROGRAM = '''
"""Logs steps, and writes checkpoints."""

import argparse
import os
import time

parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--max_steps", type=int, default=40)
parser.add_argument("--output_dir", default=".")
parser.add_argument("--resume")
given = parser.parse_args()
begin = int(given.resume.rpartition("-")[2]) if given.resume else 0
for step in range(begin + 1, given.max_steps + 1):
    time.sleep(0.05)
    print(f"step {step} loss {9 - step * given.lr / 1000}", flush=True)
    if step % 10 == 0:
        os.makedirs(f"{given.output_dir}/checkpoint-{step}", exist_ok=True)
        with open(f"{given.output_dir}/checkpoint-{step}/weights-{os.getpid()}.json", "w") as weights:
            weights.write(str(step))
'''

ELSEWHERE = {
    "run runs/demo.yaml --local": "`make run`, which the README begins with",
    "run runs/bert-large.yaml --local --override runs/overrides/bert-large.yaml": "test_seed_runs.py",
    "run SPEC --local --detach --out DIR --home DIR --time-scale X --kubeconfig FILE --faults FILE --no-walls": (
        "a synopsis; the options are in the tests of what they do"
    ),
    "export RUN --local --mlflow URI": "test_tracking.py, beside MLflow's own server",
    "export RUN --local --mlflow http://127.0.0.1:5000": "test_tracking.py, beside MLflow's own server",
    "export RUN --local --wandb research": "test_tracking.py, in W&B's environment",
    "doctor --place NAME --json": "test_doctor_of_place.py",
    "doctor --place prod": "test_doctor_of_place.py",
    "tensorboard RUN --local": "test_operate.py, of a run that has published events",
}
"""Commands that another test runs, and which one."""

SPEC = "spec.yaml"
BEGINS = {line for line in DOCUMENTED_OF_LAPTOPS if line.split()[0] in ("init", "validate")}
FOLLOWED = {line for line in DOCUMENTED_OF_LAPTOPS if line.startswith(f"run {SPEC}") and "--detach" not in line}
DETACHED = f"run {SPEC} --local --detach"
LOGS = {line for line in DOCUMENTED_OF_LAPTOPS if line.split()[0] == "logs" and "--follow" not in line}
FOLLOW = {line for line in DOCUMENTED_OF_LAPTOPS if line.split()[0] in ("watch", "logs", "ui")} - LOGS
DOCTOR = "doctor --run RUN --local"
GRIDS = {line for line in DOCUMENTED_OF_LAPTOPS if line.startswith("grid ") and "--dry-run" not in line}
OF_A_GRID = {line for line in DOCUMENTED_OF_LAPTOPS if any(GRID_ID.fullmatch(word) for word in line.split())}
STOP = "stop RUN --local"
RESUMED = {line for line in DOCUMENTED_OF_LAPTOPS if line.startswith("resume RUN")}
SHOWS_NO_BROWSER = {"BROWSER": "true"}


def test_every_documented_command_is_run_by_a_test() -> None:
    here = {*BEGINS, *FOLLOWED, DETACHED, *FOLLOW, *LOGS, DOCTOR, *GRIDS, *OF_A_GRID, STOP, *RESUMED}
    assert here | READ | ELSEWHERE.keys() == DOCUMENTED_OF_LAPTOPS
    assert not ELSEWHERE.keys() & (here | READ)


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Commands:
    """A folder with a script, and with the spec that `init` has written and its owner has changed."""
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(PROGRAM)
    shutil.copytree(REPOSITORY / "examples", folder / "examples", ignore=shutil.ignore_patterns("__pycache__"))
    command = Commands(folder, SHOWS_NO_BROWSER, alone=True)
    for line in sorted(BEGINS):  # init before validate
        command(*line.split())
    write(folder)
    return command


def write(folder: Path, *, num_nodes: int = 2, **arguments: Any) -> None:
    """Change the spec as its owner would: its nodes, and where its checkpoints are."""
    spec = yaml.safe_load((folder / SPEC).read_text())
    spec["workload"]["arguments"] |= arguments
    spec["compute"] |= {"instance_type": "trn1.32xlarge", "num_nodes": num_nodes, "check_nodes": False}
    spec["precompile"] = {"enabled": False}
    spec["checkpoint"] = {"path": "checkpoint-{step}", "resume": ["--resume", "{checkpoint}"]}
    (folder / SPEC).write_text(yaml.safe_dump(spec))


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted(FOLLOWED))
def test_a_run_is_followed_to_its_end(project: Commands, line: str) -> None:
    # Faults on the way are those of a run of some length, which restarts.
    write(project.folder, max_steps=400 if "--faults" in line else 40)
    output = project(*line.split())
    assert "Run succeeded: " in output
    assert (project.folder / "out/latest/report.html").is_file()


@pytest.mark.slow
def test_a_failed_run_is_explained_as_the_page_about_it_shows(project: Commands) -> None:
    (project.folder / "train.py").write_text(PROGRAM + "weights[3]\n")
    write(project.folder, num_nodes=1, max_steps=4)
    running = project.begin("run", SPEC, "--local")
    shown, _ = running.communicate()
    (project.folder / "train.py").write_text(PROGRAM)
    assert running.returncode == 2
    assert "error          ScriptFailed" in shown
    assert "NameError: name 'weights' is not defined" in shown
    status = project.answer("status", "latest", "--local")
    assert status.status == 1
    assert "error     ScriptFailed: Pod " in status.stdout
    for line in LOGS:
        assert "NameError: name 'weights' is not defined" in project(*line.split())
    record = json.loads((project.folder / "out/latest/run.json").read_text())
    assert record["error"]["name"] == "ScriptFailed"
    assert any("NameError" in line for pod in record["diagnostics"] for line in pod["last_lines"])


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted(GRIDS))
def test_the_runs_of_a_grid_are_started_listed_and_compared(project: Commands, line: str) -> None:
    write(project.folder, max_steps=40)
    project(*line.split())
    (_, first), (_, second) = sorted((run["started_at"], run["run_id"]) for run in project.json("list", "--local"))[-2:]
    grid = first[:-6]  # six of the twelve hexadecimal digits of its runs' ids
    for read in sorted(OF_A_GRID):
        words = [grid if GRID_ID.fullmatch(word) else word for word in read.split()]
        assert first in (answer := project(*words))
        assert second in answer


@pytest.fixture(scope="module")
def running(project: Commands) -> Iterator[str]:
    """The id of a run that goes on by itself, until it is stopped."""
    write(project.folder, max_steps=100_000)
    run_id = project(*DETACHED.split()).splitlines()[-1]
    yield run_id
    if status_of(project, run_id) == "RUNNING":
        project(*STOP.replace("RUN", run_id).split())


def status_of(project: Commands, run_id: str) -> str:
    """The run's status, whatever the exit status says of it."""
    status: str = json.loads(project.answer("status", run_id, "--local", "--json").stdout)["status"]
    return status


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted(FOLLOW))
def test_what_goes_on_is_followed_until_ctrl_c(project: Commands, running: str, line: str) -> None:
    awaited = "step " if line.split()[0] in ("logs", "watch") else "page  http://127.0.0.1:"
    following = project.begin(*line.replace("RUN", running).split())
    try:
        assert following.stdout is not None
        assert any(awaited in shown for shown in following.stdout)
        following.send_signal(signal.SIGINT)
        following.communicate(timeout=PATIENCE)
    finally:
        following.kill()
    assert following.returncode == (130 if line.startswith("logs") else 0)
    assert status_of(project, running) == "RUNNING"


@pytest.mark.slow
def test_nothing_is_wrong_with_a_run_in_good_order(project: Commands, running: str) -> None:
    until(lambda: project.json("status", running, "--local")["step"])
    assert "failed" not in project(*DOCTOR.replace("RUN", running).split())


@pytest.fixture(scope="module")
def stopped(project: Commands, running: str) -> str:
    """The id of the run, after it has written checkpoints and was stopped."""
    until(lambda: (project.json("status", running, "--local")["step"] or 0) > 20)
    project(*STOP.replace("RUN", running).split())
    assert status_of(project, running) == "ABORTED"
    return running


@pytest.mark.slow
@pytest.mark.parametrize("line", sorted(RESUMED))
def test_a_stopped_run_is_continued(project: Commands, stopped: str, line: str) -> None:
    resuming = project.begin(*line.replace("RUN", stopped).split())
    try:
        assert resuming.stdout is not None
        shown = next(shown for shown in resuming.stdout if "step " in shown)
        assert "step 1:" not in shown and "step 1/" not in shown
    finally:
        resuming.send_signal(signal.SIGINT)  # without a terminal it stops the run
        resuming.communicate(timeout=PATIENCE)
    assert resuming.returncode == 130
    assert not [run for run in project.json("list", "--local") if run["status"] == "RUNNING"]
