"""A run is listed from the first moment on, with the time at which it was started, until its twin runs it."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.commands import Commands
from tests.integration.test_runs import steps_spec
from tests.waiting import PATIENCE, wait_until
from trainflow.client.twin_address import START_FILE


@pytest.fixture
def command(tmp_path: Path) -> Commands:
    spec = steps_spec(max_steps=600, seconds_per_step=0.1)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec | {"workload": {**spec["workload"], "script": "steps.py"}}))
    (tmp_path / "steps.py").write_text(Path(spec["workload"]["script"]).read_text())
    return Commands(tmp_path)


def listed(command: Commands) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = command.json("list", "--local")
    return found


def states(command: Commands) -> Iterator[dict[str, Any]]:
    """The run at every poll, from the first moment until its twin runs it."""
    seen: list[dict[str, Any]] = []

    def running() -> bool:
        seen.extend(listed(command))
        return bool(seen) and seen[-1]["status"] == "RUNNING"

    wait_until(running)
    yield from seen


def test_a_run_is_starting_until_it_runs_and_keeps_the_time_of_its_start(command: Commands) -> None:
    process = command.begin("run", "spec.yaml", "--local")
    try:
        wait_until(lambda: bool(listed(command)))
        [first] = listed(command)
        assert first["status"] == "STARTING"
        described = command.json("status", "latest", "--local")  # it ends with 0
        assert (described["status"], described["started_at"]) == ("STARTING", first["started_at"])
        seen = list(states(command))
        assert {each["status"] for each in seen} <= {"STARTING", "RUNNING"}
        assert {each["started_at"] for each in seen} == {first["started_at"]}
        assert command.json("status", "latest", "--local")["started_at"] == first["started_at"]
        assert command("stop", first["run_id"], "--local").startswith("Stopped")
        [ended] = listed(command)
        assert (ended["status"], ended["started_at"]) == ("ABORTED", first["started_at"])
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE)


def test_a_start_that_is_killed_is_aborted_and_not_starting_for_ever(command: Commands) -> None:
    process = command.begin("run", "spec.yaml", "--local")
    wait_until(lambda: any((command.folder / "out").glob(f"*/{START_FILE}")))
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=PATIENCE)
    wait_until(lambda: [each["status"] for each in listed(command)] == ["ABORTED"])
    assert command.answer("status", "latest", "--local").status == 1
