"""Stops, shuffled uploads, recovery from failures, 500 runs at once, and a year."""

from __future__ import annotations

import json
import math
import random
import statistics
import time
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import yaml

from benchmarks.fault_events import waiting_requests
from benchmarks.fault_injection import Plan
from benchmarks.fault_runs import (
    RUN_SECONDS,
    TIME_SCALE,
    Part,
    Row,
    arn_of_run,
    faulty_twin,
    histories,
    left,
    steps,
)
from benchmarks.many_runs import limit_nodes, published_losses, run_all
from benchmarks.result import BenchmarkFailed
from local.aws import deployment
from local.no_op_logs import STEPS, step_loss
from local.place import TwinRuns
from local.twin import Twin
from trainflow.client.place import RunSummary
from trainflow.state_machines import definition
from trainflow.workflow.run_record import RunError, RunStatus

NUM_STOPPED = 5
NUM_CONTENTS = 4
NUM_INVALID = 20
NUM_CROWD = 500
CROWD_TYPE = "trn1.2xlarge"

HISTORY_QUOTA = 25_000
EVENTS_OF_POLL, EVENTS_OF_TRY, EVENTS_OF_WINDOW = 14, 3, 8
"""Events of a lap without a failure, of a try that fails, and in the parent of a window."""
FAILING_POLLS = 0.05
TRIES = 3


def stops() -> Part:
    """Five runs are stopped at different moments of their way."""
    row = Row()
    with faulty_twin(Plan(), time_scale=TIME_SCALE) as twin:
        place, sfn = TwinRuns(twin), twin.client("stepfunctions")
        assert twin.deployment is not None
        for number in range(NUM_STOPPED):
            run_id = f"stopped-{number}-aa"
            machine = twin.deployment.address.state_machine_arn
            sfn.start_execution(stateMachineArn=machine, name=run_id, input=json.dumps(steps(max_steps=600)))
            time.sleep(3.0 * number)
            place.stop(run_id, reason=RunError(name="Stopped", message="On request.", what_to_do=""))
            row.injected += 1
            found = twin.client("dynamodb").get_item(TableName=deployment.RUN_TABLE, Key={"run_id": {"S": run_id}})
            if found.get("Item", {}).get("status") == {"S": "RUNNING"}:
                row.left += 1
                row.notes.append(f"the row of {run_id} says RUNNING")
        row.add(left(twin))
    return {"StopExecution": row}, {}, {}


def uploads() -> Part:
    """228 uploads of four contents, 20 of them invalid, in a random order."""
    contents = [yaml.safe_dump(steps(max_steps=1) | {"name": _content(number)}) for number in range(NUM_CONTENTS)]
    texts = [contents[number % NUM_CONTENTS] for number in range(208)] + ["version: 1\nname: broken\n"] * NUM_INVALID
    random.Random(18).shuffle(texts)  # noqa: S311
    with faulty_twin(Plan(), time_scale=TIME_SCALE) as twin:
        s3 = twin.client("s3")
        for number, text in enumerate(texts):
            key = f"runs/{number}.yaml"
            s3.put_object(Bucket=deployment.DATA_BUCKET, Key=key, Body=text.encode())
        place, deadline = TwinRuns(twin), time.monotonic() + RUN_SECONDS
        runs: list[RunSummary] = []
        while time.monotonic() < deadline and (
            waiting_requests(twin) or len(runs) < NUM_CONTENTS or any(run.status is RunStatus.RUNNING for run in runs)
        ):
            time.sleep(1)
            runs = place.runs()
        row = compare_uploads(runs)
        row.injected = NUM_INVALID
        row.add(left(twin))
        if waiting := waiting_requests(twin):
            row.add(Row(left=waiting, notes=[f"{waiting} requests wait"]))
    return {"uploads": row}, {}, {"uploads": len(texts)}


def compare_uploads(runs: Iterable[RunSummary]) -> Row:
    """Require that one run of each content succeeds, and that other runs do not exist."""
    row, statuses = Row(), {_content(number): list[str]() for number in range(NUM_CONTENTS)}
    for run in runs:
        statuses.setdefault(run.run_id.rpartition("-")[0], []).append(run.status)
    for content, found in statuses.items():
        is_valid = content in map(_content, range(NUM_CONTENTS))
        row.count(f"runs of {content}", found=len(found), wanted=int(is_valid))
        if is_valid and found and RunStatus.SUCCEEDED not in found:
            row.lost += 1
            row.notes.append(f"{content} ended as {', '.join(found)}")
    return row


def _content(number: int) -> str:
    """Name of the runs of a content."""
    return f"upload-{number}"


def crowd() -> Part:
    """500 runs at once, in pods that run nothing."""
    spec = steps() | {"compute": {"instance_type": CROWD_TYPE, "num_nodes": 1, "processes_per_node": 1}}
    began = time.monotonic()
    with faulty_twin(Plan(), time_scale=2, no_op_seconds=0.0) as twin:
        limit_nodes(twin, CROWD_TYPE, NUM_CROWD)
        run_ids = [f"crowd-{number:012x}" for number in range(NUM_CROWD)]
        statuses = run_all(twin, dict.fromkeys(run_ids, spec), limit_seconds=4 * RUN_SECONDS)
        row = compare_crowd(statuses, {run_id: published_losses(twin, run_id) for run_id in run_ids})
        row.add(left(twin))
    return {f"{NUM_CROWD} runs at once": row}, {"all": round(time.monotonic() - began, 1)}, {}


def compare_crowd(statuses: Mapping[str, str], published: Mapping[str, tuple[float, float]]) -> Row:
    """Compare how runs ended, and count and sum of their losses, with what their pods claim.

    Args:
        statuses: How each run ended.
        published: Count and sum of each run's losses in CloudWatch.
    """
    row = Row()
    for run_id, status in statuses.items():
        if status != "SUCCEEDED":
            row.lost += 1
            row.notes.append(f"{run_id} ended as {status}")
        count, total = published[run_id]
        row.count(f"data points of {run_id}", found=round(count), wanted=STEPS)
        wanted = sum(step_loss(run_id, step) for step in range(1, STEPS + 1))
        if count == STEPS and not math.isclose(total, wanted, abs_tol=1e-3):
            row.add(Row(lost=1, doubled=1, notes=[f"the losses of {run_id} are {total:g} together for {wanted:g}"]))
    return row


def year() -> Part:
    """A year of polls with the shortest pause; one in twenty fails with all of its tries, as in an outage.

    The pauses are those that PollJob asks for, of runs that began up to a year ago.
    """
    with faulty_twin(Plan(), time_scale=TIME_SCALE, no_op_seconds=600.0) as twin:
        pauses = _pauses(twin)
    generator, age, failed_polls = random.Random(18), timedelta(0), 0  # noqa: S311
    rules = definition("watch_job")["States"]["IsJobFinished"]["Choices"]
    laps = next(rule["NumericGreaterThanEquals"] for rule in rules if "NumericGreaterThanEquals" in rule)
    windows: list[int] = []
    while age < timedelta(days=365):
        events = 20
        for _ in range(laps):
            failed = generator.random() < FAILING_POLLS
            failed_polls += failed
            events += EVENTS_OF_POLL + (TRIES * EVENTS_OF_TRY if failed else 0)
            age += timedelta(seconds=60 if failed else pauses[min(age.days, 365) // DAYS_APART])
        windows.append(events)
    of_run = len(windows) * EVENTS_OF_WINDOW
    row = Row(lost=int(of_run > HISTORY_QUOTA) + sum(events > HISTORY_QUOTA for events in windows))
    facts = {
        "failed_polls": failed_polls,
        "windows": len(windows),
        "events_of_run": of_run,
        "events_of_window": {"median": statistics.median(windows), "most": max(windows)},
        "quota": HISTORY_QUOTA,
    }
    return {"a year": row}, {}, facts


DAYS_APART = 5


def _pauses(twin: Twin) -> list[int]:
    """Seconds to the next poll that PollJob asks for, of a run of each age, five days apart."""
    sfn, functions, run_id = twin.client("stepfunctions"), twin.client("lambda"), "year-aa"
    assert twin.deployment is not None
    spec = steps() | {"limits": {"poll_seconds": 10}}
    machine = twin.deployment.address.state_machine_arn
    sfn.start_execution(stateMachineArn=machine, name=run_id, input=json.dumps(spec))
    polled = _first_poll(twin, run_id)
    pauses = []
    for days in range(0, 366, DAYS_APART):
        began = datetime.now(UTC) - timedelta(days=days)
        payload = {**polled["Payload"], "run": {**polled["Payload"]["run"], "started_at": began.isoformat()}}
        answer = functions.invoke(FunctionName=polled["FunctionName"], Payload=json.dumps(payload))
        found = json.loads(answer["Payload"].read())
        if "wait_seconds" not in found:
            raise BenchmarkFailed(f"PollJob of a run of {days} days answered {found}.")
        pauses.append(int(found["wait_seconds"]))
    TwinRuns(twin).stop(run_id, reason=RunError(name="Stopped", message="Measured.", what_to_do=""))
    return pauses


def _first_poll(twin: Twin, run_id: str) -> Any:
    """Function and payload of the run's first poll."""
    deadline = time.monotonic() + RUN_SECONDS
    while time.monotonic() < deadline:
        time.sleep(1)
        _, *windows = histories(twin.client("stepfunctions"), arn_of_run(twin, run_id))
        for event in (event for window in windows for event in window.events):
            if "taskScheduledEventDetails" in event:
                return json.loads(event["taskScheduledEventDetails"]["parameters"])
    raise BenchmarkFailed(f"The job of {run_id} was not polled within {RUN_SECONDS:g} s.")
