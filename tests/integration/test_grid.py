"""The runs of a grid: each is started once, however often the command is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from local.place import NOT_PROVEN
from local.twin import Twin
from tests.integration.commands import Commands, until
from tests.integration.test_runs import steps_spec
from trainflow.cli.operate import grid as command_module
from trainflow.cli.operate.grid import _Deployed, _Words
from trainflow.client.grid import grid_of
from trainflow.client.runs import DeployedRuns

OVER = ("--over", "workload.arguments.max_steps=100000,3")


def write_spec(folder: Path) -> None:
    (folder / "spec.yaml").write_text(yaml.safe_dump(steps_spec(seconds_per_step=0.1)))


@pytest.mark.slow
def test_a_grid_of_the_twin_goes_on_after_its_command_was_killed(tmp_path: Path) -> None:
    write_spec(tmp_path)
    command = Commands(tmp_path)
    words = ["grid", "spec.yaml", *OVER, "--local", "--time-scale", "60"]
    planned = command.json(*words, "--dry-run")
    endless, short = (run["run_id"] for run in planned["runs"])
    assert command.json("list", "--local") == []
    killed = subprocess.Popen(
        [sys.executable, "-m", "trainflow", *words], cwd=tmp_path, env=command.environment, stdout=subprocess.DEVNULL
    )
    until(lambda: [run["status"] for run in command.json("list", "--local")] == ["RUNNING"])
    killed.kill()
    killed.wait(30)

    said = command(*words, "--no-walls")
    assert f"{endless} exists already: ABORTED.\n" in said
    assert NOT_PROVEN in said
    assert f"Started {short}.\n{short} has ended: SUCCEEDED" in said
    listed = command.json("list", "--local", "--grid", planned["grid"])
    assert [(run["run_id"], run["status"]) for run in listed] == [(short, "SUCCEEDED"), (endless, "ABORTED")]
    assert "Started" not in command(*words)


@pytest.mark.slow
def test_a_grid_in_a_deployment_is_started_once_listed_and_compared(account: Twin, tmp_path: Path) -> None:
    write_spec(tmp_path)
    command = Commands(tmp_path, account.aws.client_environment, alone=True)
    words = ("grid", "spec.yaml", "--over", "workload.arguments.max_steps=3,4")
    started = command.json(*words)
    run_ids = [run["run_id"] for run in started["runs"]]
    assert "Started" not in command(*words)
    assert sorted(run["run_id"] for run in command.json("list")) == sorted(run_ids)
    until(lambda: {run["status"] for run in command.json("list", "--grid", started["grid"])} == {"SUCCEEDED"})
    found = command.json("compare", started["grid"])
    assert found["differing_fields"] == {"workload.arguments.max_steps": [3, 4]}
    assert [run["run_id"] for run in found["runs"]] == run_ids
    assert "Started" not in command(*words)


@pytest.mark.slow
def test_no_more_runs_go_on_at_a_time_than_were_asked_for(
    account: Twin, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in account.aws.client_environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setattr(command_module, "POLL_SECONDS", 0.5)
    running: list[int] = []
    start = DeployedRuns.start

    def counted(self: DeployedRuns, *args: object, **options: object) -> str:
        started = start(self, *args, **options)  # type: ignore[arg-type]
        running.append(sum(run.status == "RUNNING" for run in self.runs()))
        return started

    monkeypatch.setattr(DeployedRuns, "start", counted)
    grid = grid_of(steps_spec(seconds_per_step=0.1), ["workload.arguments.max_steps=3,4,5"])
    assert _Deployed(grid, None, place=None, parallel=1, say=_Words(quiet=True), started=lambda: None).run() == 0
    assert running == [1, 1, 1]
