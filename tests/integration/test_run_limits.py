"""A run that reaches a limit ends with a checkpoint, published artifacts and no nodes; resumed, it goes on from it."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from benchmarks.fault_injection import FAULTS, Blindness, FirstTries, Mail, Plan
from benchmarks.many_runs import published_losses
from local.aws.deployment import REQUESTS
from local.aws.faults import no_faults
from local.place import TwinRuns
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_operate import until
from tests.integration.test_runs import assert_nothing_is_left
from trainflow.cli.run import LIMIT_REACHED, exit_status, follow_to_end
from trainflow.client.place import RunSummary
from trainflow.nodes.prices import usd_per_hour
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord, RunStatus

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
    with (arguments.folder / "printed").open("a") as printed:
        print(state["step"], file=printed)
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


def assert_every_step_is_published_once(twin: Twin, record: RunRecord) -> None:
    """What rank 0 printed until its end, also after it was asked to end, against CloudWatch and the record."""
    printed = (twin.home / "volumes" / "runs" / record.run_id / "printed").read_text().split()
    assert record.metrics_published is not None
    assert record.metrics_published.last_step == int(printed[-1])
    assert published_losses(twin, record.run_id)[0] == len(printed)


@pytest.mark.slow
@pytest.mark.parametrize("crashes", [False, True])
def test_a_run_ends_at_its_budget_and_is_resumed_without_a_step_lost(
    twin: Twin, plan: Plan, tmp_path: Path, crashes: bool
) -> None:
    """Also if every call of its functions crashes once, after it has acted."""
    mail, console = Mail(twin, f"crashes-{crashes}".lower()), Console(file=io.StringIO())
    run_id = f"crashes-{crashes}-0000aa".lower()
    with plan.replaced(FirstTries(FAULTS["crash-after"]) if crashes else no_faults):
        record = follow_run(twin, parse_run_spec(spec()), run_id, folder=tmp_path, console=console)
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
    assert_every_step_is_published_once(twin, record)
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


def test_a_run_ends_at_its_budget_also_if_its_job_can_never_be_polled(twin: Twin, plan: Plan, tmp_path: Path) -> None:
    with plan.replaced(Blindness("PollJob", error="ClusterUnavailable", seconds=3600)):
        console = Console(file=io.StringIO())
        record = follow_run(twin, parse_run_spec(spec()), "unseen-0000aa", folder=tmp_path, console=console)
    assert record.error is not None
    assert (record.error.name, exit_status(record)) == ("BudgetReached", LIMIT_REACHED)
    assert record.error.message.startswith("The run reached limits.max_usd at ")
    own = [visit.name for visit in record.states if visit.execution == record.run_id]
    assert {"StopAtLimit", "PublishAtLimit", "TearDownAfterFailure"} <= set(own)
    assert record.training is None or record.training.checkpoint is not None
    assert_every_step_is_published_once(twin, record)
    assert_nothing_is_left(twin, record.run_id)


@pytest.mark.slow
def test_a_scheduled_run_waits_for_the_one_before_it_and_no_second_one_does(twin: Twin) -> None:
    mail, sqs, place = Mail(twin, "schedules"), twin.client("sqs"), TwinRuns(twin)
    url = sqs.get_queue_url(QueueName=REQUESTS)["QueueUrl"]
    quick = spec() | {"name": "nightly", "limits": {}, "teardown": {}}
    quick["workload"]["arguments"] = {"max_steps": 20, "seconds_per_step": 0.1}
    for day in (1, 2, 3):
        request = {"schedule": "nightly", "scheduled_at": f"2026-11-0{day}T02:00:00Z", "overlap": "queue"}
        sqs.send_message(QueueUrl=url, MessageBody=json.dumps(request | {"spec": quick}))
        if day == 1:
            until(lambda: scheduled_runs(place))

    def ended() -> list[RunSummary]:
        return [run for run in scheduled_runs(place) if run.status is RunStatus.SUCCEEDED]

    until(lambda: len(ended()) == 2)
    second, first = ended()
    assert first.ended_at is not None
    assert second.started_at >= first.ended_at
    assert len(scheduled_runs(place)) == 2
    assert {"Trainflow: schedule nightly waits", "Trainflow: schedule nightly was skipped"} < set(mail.subjects())


def scheduled_runs(place: TwinRuns) -> list[RunSummary]:
    return [run for run in place.runs() if run.run_id.startswith("nightly-")]
