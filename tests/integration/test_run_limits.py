"""A run that reaches a limit ends with a checkpoint, published artifacts and no nodes; resumed, it goes on from it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local.place import TwinRuns
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_function_faults import FAULTS, FirstTries, Mail, Plan
from tests.integration.test_runs import assert_nothing_is_left
from trainflow.cli.run import LIMIT_REACHED, exit_status, follow_to_end
from trainflow.models.prices import usd_per_hour
from trainflow.models.run_record import RunStatus
from trainflow.models.run_spec import parse_run_spec

PROGRAM = """
import argparse, json, signal, sys, time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--max_steps", type=int)
parser.add_argument("--seconds_per_step", type=float)
parser.add_argument("--load", type=Path)
arguments = parser.parse_args()
state = json.loads(arguments.load.read_text()) if arguments.load else {"step": 0, "weight": 1.0}
asked = []
signal.signal(signal.SIGTERM, lambda *_: asked.append(True))
while state["step"] < arguments.max_steps:
    time.sleep(arguments.seconds_per_step)
    state = {"step": state["step"] + 1, "weight": state["weight"] * 0.97 + 0.001 * state["step"]}
    print(json.dumps({"step": state["step"], "loss": state["weight"]}), flush=True)
    if asked or state["step"] in (20, arguments.max_steps):
        unfinished = arguments.folder / "unfinished"
        unfinished.write_text(json.dumps(state))
        unfinished.replace(arguments.folder / f"state-{state['step']}.json")
    if asked:
        sys.exit(143)
"""
LAST_STEP = 1000
SECONDS = 18
"""Time that the nodes may be held."""


def spec() -> dict[str, Any]:
    price = usd_per_hour("c7i.xlarge", region="us-west-2")
    assert price is not None
    return {
        "version": 1,
        "name": "counter",
        "workload": {
            "command": ["python", "count.py"],
            "image": "python:3.13-slim",
            "launcher": "none",
            "arguments": {"max_steps": LAST_STEP, "seconds_per_step": 0.1},
            "positional": ["{run_dir}"],
            "shared_memory_gib": 1,
        },
        "compute": {"instance_type": "c7i.xlarge", "num_nodes": 1, "processes_per_node": 1},
        "progress": {"json_lines": True},
        "checkpoint": {"path": "state-{step}.json", "resume": ["--load", "{checkpoint}"], "settled_seconds": 0},
        "limits": {"max_usd": price * SECONDS / 3600},
        "teardown": {"on_failure": False},  # meant for failures to debug, so it keeps nothing here
    }


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan()


@pytest.fixture(scope="module")
def twin(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    image = tmp_path_factory.mktemp("image")
    (image / "count.py").write_text(PROGRAM)
    home, logs = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("logs")
    with Twin(home=home, log_dir=logs, time_scale=100, image_root=image, faults=plan) as running:
        yield running


def uninterrupted() -> dict[str, Any]:
    weight = 1.0
    for step in range(LAST_STEP):
        weight = weight * 0.97 + 0.001 * step
    return {"step": LAST_STEP, "weight": weight}


def test_a_run_whose_every_call_fails_once_ends_at_its_budget_and_is_resumed_without_a_step_lost(
    twin: Twin, plan: Plan, tmp_path: Path
) -> None:
    mail, faults = Mail(twin, "limits"), FirstTries(FAULTS["crash-after"])
    console = Console(file=io.StringIO())
    with plan.replaced(faults):
        record = follow_run(twin, parse_run_spec(spec()), "budget-0000000000aa", folder=tmp_path, console=console)
    assert record.error is not None
    assert (record.status, record.error.name, exit_status(record)) == (
        RunStatus.FAILED,
        "BudgetReached",
        LIMIT_REACHED,
    )
    own = [visit.name for visit in record.states if visit.execution == record.run_id]
    assert {"StopAtLimit", "PublishAtLimit", "TearDownAfterFailure"} <= set(own)
    assert "DeleteJob" not in own, "a limit is no reason to restart"
    assert mail.subjects() == [
        f"Trainflow: {record.run_id} nears its limit",
        f"Trainflow: {record.run_id} BudgetReached",
    ]
    assert_nothing_is_left(twin, record.run_id)
    assert record.training is not None
    saved = record.training.checkpoint
    assert saved is not None
    step = int(saved.removesuffix(".json").rsplit("-", 1)[1])
    assert 20 < step < LAST_STEP, "saved when it was asked to, not at the last interval"
    assert record.cost is not None
    assert record.cost.usd is not None
    assert record.cost.usd >= record.spec["limits"]["max_usd"] * 0.9

    place = TwinRuns(twin)
    changes = {"limits": {"max_usd": 5}, "workload": {"arguments": {"seconds_per_step": 0}}}
    second = place.resume(record.run_id, changes=changes)
    resumed = follow_to_end(place, second, folder=tmp_path / "second", console=console)
    assert (resumed.status, resumed.error) == (RunStatus.SUCCEEDED, None)
    assert resumed.spec["resume_from"] == [record.run_id]
    assert resumed.metrics_published is not None
    assert resumed.metrics_published.first_step == step + 1
    final = twin.home / "volumes" / "runs" / second / f"state-{LAST_STEP}.json"
    assert json.loads(final.read_text()) == uninterrupted()
