"""A run that was stopped goes on as a run of its own, from the checkpoints of the first."""

from __future__ import annotations

import copy
import json
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from local.place import NOT_PROVEN, SHARED_NETWORK
from local.twin import Twin
from tests.integration.commands import Commands, until
from trainflow.client.background import NotStarted, resume_in_background
from trainflow.client.local_runs import LocalOptions, LocalRuns
from trainflow.client.twin_address import FILE_NAME
from trainflow.page.library import RunLibrary

PROGRAM = """
import argparse, json, os, time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--max_steps", type=int)
parser.add_argument("--seconds_per_step", type=float)
parser.add_argument("--load", type=Path)
parser.add_argument("--nan_at", type=int)
arguments = parser.parse_args()
state = json.loads(arguments.load.read_text()) if arguments.load else {"step": 0, "weight": 1.0}
while state["step"] < arguments.max_steps:
    time.sleep(arguments.seconds_per_step)
    state = {"step": state["step"] + 1, "weight": state["weight"] * 0.97 + 0.001 * state["step"]}
    if state["step"] == arguments.nan_at:
        state["weight"] = float("nan")
    print(json.dumps({"step": state["step"], "loss": state["weight"]}), flush=True)
    if state["step"] % 5 == 0:
        unfinished = arguments.folder / "unfinished"
        unfinished.write_text(json.dumps(state))
        unfinished.replace(arguments.folder / f"state-{state['step']}.json")
"""

SPEC: dict[str, Any] = {
    "version": 1,
    "name": "counter",
    "workload": {
        "command": ["python", "count.py"],
        "code": ".",
        "image": "python:3.13-slim",
        "launcher": "none",
        "arguments": {"max_steps": 100_000, "seconds_per_step": 0.2},
        "positional": ["{run_dir}"],
        "shared_memory_gib": 1,
    },
    "compute": {"instance_type": "c7i.xlarge", "num_nodes": 1, "processes_per_node": 1},
    "progress": {"json_lines": True},
    "checkpoint": {"path": "state-{step}.json", "resume": ["--load", "{checkpoint}"], "settled_seconds": 0},
    "limits": {"max_duration_hours": 1, "max_restarts": 0},
}
LAST_STEP = 400
"""Beyond what a first run reaches before a test stops it, at five steps a second."""
QUICKLY = ("--set", "workload.arguments.seconds_per_step=0", "--set", f"workload.arguments.max_steps={LAST_STEP}")


def write_project(folder: Path) -> None:
    (folder / "count.py").write_text(PROGRAM)
    (folder / "spec.yaml").write_text(yaml.safe_dump(SPEC))


def uninterrupted(folder: Path) -> dict[int, float]:
    """Loss of each step of the same program, run by itself."""
    (folder / "alone").mkdir()
    (folder / "alone.py").write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, "alone.py", "alone", "--max_steps", str(LAST_STEP), "--seconds_per_step", "0"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["step"]: line["loss"] for line in lines}


def losses(command: Commands, run_id: str, *at: str) -> dict[int, float]:
    return {each["step"]: each["loss"] for each in json.loads(command("metrics", run_id, *at, "--export", "json"))}


def kill_the_twin_of(folder: Path) -> None:
    """Kill the process that runs the twin, as a machine that loses its power does."""
    (twin,) = [
        process
        for process in psutil.process_iter(["cmdline", "cwd"])
        if "--announce-to" in (process.info["cmdline"] or ()) and process.info["cwd"] == str(folder)
    ]
    twin.kill()
    twin.wait(30)


START = ("run", "spec.yaml", "--local", "--detach", "--no-page", "--time-scale", "60")


def test_a_run_whose_twin_was_killed_goes_on_where_its_checkpoint_is(tmp_path: Path) -> None:
    write_project(tmp_path)
    command = Commands(tmp_path)
    # A twin of another test, in the same folder for temporary files, would remove what the killed one leaves.
    command.environment["TMPDIR"] = tempfile.mkdtemp()
    first = command(*START).splitlines()[-1]
    checkpoints = tmp_path / ".trainflow" / "volumes" / "runs" / first
    until(lambda: list(checkpoints.glob("state-10.json")))
    assert "is still running; stop it first" in command.refused("resume", first, "--local")
    address = json.loads((tmp_path / "out" / first / FILE_NAME).read_text())
    kill_the_twin_of(tmp_path)
    assert '{"step": 10,' in command("logs", first, "--local")
    assert Path(address["credentials"]).parent.is_dir()
    assert json.loads(command("status", first, "--local", "--json", status=1))["status"] == "ABORTED"
    (tmp_path / "count.py").unlink()  # the code is what the first run was started with
    left = sorted(path.name for path in checkpoints.glob("state-*.json"))

    (tmp_path / "faults.yaml").write_text("version: 1\nfunctions: [{state: SubmitTraining}]\n")
    of_twin = ("--no-walls", "--faults", "faults.yaml")

    said = command("resume", first, "--local", "--no-page", "--time-scale", "60", *of_twin, *QUICKLY)

    assert not Path(address["credentials"]).parent.exists(), "the next twin removes what the killed one has left"
    assert NOT_PROVEN in said
    assert SHARED_NETWORK.format(reason="the pods have no walls") in said
    assert "Injected: call 1 of SubmitTraining fails with Runtime.ExitError" in said
    second = command.json("list", "--local")[0]["run_id"]
    record = json.loads((tmp_path / "out" / second / "run.json").read_text())
    assert (record["status"], record["spec"]["resume_from"]) == ("SUCCEEDED", [first])
    continued = losses(command, second, "--local")
    assert min(continued) > 10
    expected = uninterrupted(tmp_path)
    assert continued == pytest.approx({step: loss for step, loss in expected.items() if step >= min(continued)})
    assert max(continued) == LAST_STEP
    assert sorted(path.name for path in checkpoints.glob("state-*.json")) == left, "the first run's folder stays"
    differing = command.json("compare", second, second, "--local")["differing_fields"]
    assert differing == {}

    assert "has succeeded; say with --set what is to differ" in command.refused("resume", second, "--local")
    assert "num_node: there is no such field" in command.refused(
        "resume", first, "--local", "--set", "compute.num_node=2"
    )
    shutil.rmtree(checkpoints)
    assert f"the folder of {first} is gone" in command.refused("resume", first, "--local")


@pytest.mark.slow
def test_a_stopped_run_of_a_deployment_goes_on_until_its_folder_is_gone(account: Twin, tmp_path: Path) -> None:
    write_project(tmp_path)
    command = Commands(tmp_path, account.aws.client_environment, alone=True)
    first = command("run", "spec.yaml", "--detach").splitlines()[-1]
    checkpoints = account.home / "volumes" / "runs" / first
    until(lambda: list(checkpoints.glob("state-10.json")))
    assert f"is still running; stop it first: trainflow stop {first}" in command.refused("resume", first)
    command("stop", first)

    second = command("resume", first, "--detach", *QUICKLY).splitlines()[-1]
    until(lambda: command.json("status", second)["status"] == "SUCCEEDED")
    continued = losses(command, second)
    expected = uninterrupted(tmp_path)
    assert continued == pytest.approx({step: loss for step, loss in expected.items() if step >= min(continued)})
    assert (min(continued) > 10, max(continued)) == (True, LAST_STEP)
    differing = command.json("compare", first, second)["differing_fields"]
    assert differing == {
        "resume_from": [[], [first]],
        "workload.arguments.seconds_per_step": [0.2, 0],
        "workload.arguments.max_steps": [100_000, LAST_STEP],
    }

    shutil.rmtree(checkpoints)
    third = command("resume", first, "--detach", *QUICKLY).splitlines()[-1]
    until(lambda: {run["run_id"]: run["status"] for run in command.json("list")}[third] != "RUNNING")
    failed = json.loads(command("status", third, "--json", status=1))
    assert failed["error"]["name"] == "PreflightFailed"
    assert f"resume_from: the folder of {first} is gone from the shared file system." in failed["error"]["message"]


@pytest.mark.slow
def test_the_page_starts_a_run_of_this_machine_that_outlives_it(tmp_path: Path) -> None:
    write_project(tmp_path)
    command = Commands(tmp_path)
    first = command(*START).splitlines()[-1]
    out, home = tmp_path / "out", tmp_path / ".trainflow"
    until(lambda: list((home / "volumes" / "runs" / first).glob("state-10.json")))
    with pytest.raises(NotStarted, match=rf"{first} .*still running.*trainflow stop"):
        resume_in_background(first, out=out, home=home)
    command("stop", first, "--local")

    here = LocalRuns(LocalOptions(out=out, home=home))
    resume = partial(resume_in_background, out=out, home=home)
    with RunLibrary(folder=out, place=here, resume=resume) as library:
        assert library.run(first).can_resume
        second = library.resume(first)
        assert library.resume(first) == second, "the page asks twice"
        busy = until(lambda: library.run(second).busy.utilization)
        assert (busy.of, list(busy.by_node)) == ("CPUs", ["c7i-xlarge-0"])
    until(lambda: list((home / "volumes" / "runs" / second).glob("state-*.json")))
    assert min(losses(command, second, "--local")) > 10
    command("stop", second, "--local")
    assert [run["run_id"] for run in command.json("list", "--local")] == [second, first]


@pytest.mark.slow
def test_a_run_whose_loss_stayed_nan_is_continued_from_before_the_first_nan(tmp_path: Path) -> None:
    write_project(tmp_path)
    spec = copy.deepcopy(SPEC)
    spec["workload"]["arguments"] = {"max_steps": 60, "seconds_per_step": 0.02, "nan_at": 33}
    spec["limits"]["on_non_finite"] = {"stop_after": 3}
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec))
    command = Commands(tmp_path)
    place = ("--local", "--no-page", "--time-scale", "60")
    command("run", "spec.yaml", *place, status=3)
    (first,) = [path.name for path in (tmp_path / "out").iterdir() if path.name.startswith("counter-")]
    left = {path.name for path in (tmp_path / ".trainflow" / "volumes" / "runs" / first).glob("state-*.json")}
    assert {"state-30.json", "state-35.json"} <= left, "the newest one holds a NaN"

    none_left = command.refused("resume", first, "--local", "--from-step", "4")
    assert "is old enough (it is newer than step 4); it has state-" in none_left
    text = command("resume", first, *place, "--set", "workload.arguments.nan_at=0")

    assert "its newest finite loss was at step 32" in text
    (second,) = {path.name for path in (tmp_path / "out").iterdir() if path.name.startswith("counter-")} - {first}
    steps = losses(command, second, "--local")
    assert (min(steps), max(steps)) == (31, 60)
    assert all(loss == loss for loss in steps.values())
