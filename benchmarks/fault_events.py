"""Faults of the functions that events invoke: an upload that is accepted, one that is refused, a request that was given
up, a run that is stopped, and idle nodes. EventBridge, queues and schedules call a function that has failed again."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta

import yaml
from boto3.dynamodb.types import TypeSerializer

from benchmarks.fault_injection import FAULTS, FirstTries, Mail, Plan
from benchmarks.fault_runs import RUN_SECONDS, Row, arn_of_run, compare_subjects, histories, left, steps
from benchmarks.many_runs import published_losses, start_all
from local.aws import deployment
from local.aws.deployment import LOST_REQUESTS, REQUESTS
from local.place import TwinRuns
from local.twin import Twin
from trainflow.client.place import RunSummary
from trainflow.nodes.instances import nodegroup_name
from trainflow.record.history import visits
from trainflow.workflow.run_record import RunError, RunRecord, RunStatus
from trainflow.workflow.run_table import KEY, SURVEY_KEY, LastSurvey

NUM_STEPS = 3
IDLE_TYPE = "trn1.2xlarge"
NUM_IDLE = 2
SURVEY_SECONDS = 10.0
"""Time between two surveys in a twin, at least."""
EVENT_SECONDS = 60.0
"""Time limit of what needs no run: a queue delivers again after 3.6 seconds."""


def event_cell(twin: Twin, plan: Plan, fault: str, event: str) -> tuple[Row, Counter[str]]:
    """Something happens, and every function that it invokes fails at first: its row, and how often each has failed."""
    first_tries, mail = FirstTries(FAULTS[fault]), Mail(twin, f"{fault}-{event.replace(' ', '-')}")
    with plan.replaced_for_events(first_tries):
        row = EVENTS[event](twin, fault, mail)
    if waiting := waiting_requests(twin):
        row.add(Row(left=waiting, notes=[f"{waiting} requests wait"]))
    row.add(left(twin))
    row.injected = first_tries.met.total()
    return row, first_tries.met


def _upload(twin: Twin, fault: str, mail: Mail) -> Row:
    """One run of it, which succeeds and publishes each step once."""
    place, name = TwinRuns(twin), f"uploaded-{fault}"
    _put(twin, f"{name}.yaml", yaml.safe_dump(steps(max_steps=NUM_STEPS) | {"name": name}))

    def runs() -> list[RunSummary]:
        return [run for run in place.runs() if run.run_id.startswith(f"{name}-")]

    _wait(lambda: any(run.status is not RunStatus.RUNNING for run in runs()), seconds=RUN_SECONDS)
    _wait(lambda: waiting_requests(twin) == 0, seconds=EVENT_SECONDS)
    place.settle()
    found, row = runs(), Row()
    row.count(f"runs of {name}", found=len(found), wanted=1)
    for run in found:
        points, _ = published_losses(twin, run.run_id)
        row.count(f"data points of {run.run_id}", found=round(points), wanted=NUM_STEPS)
        row.add(_compare_end(twin, run.run_id, RunStatus.SUCCEEDED))
    row.add(compare_subjects([f"Trainflow: {run.run_id} SUCCEEDED" for run in found[:1]], mail.subjects()))
    return row


def _refused_upload(twin: Twin, fault: str, mail: Mail) -> Row:
    """One message, and the reason beside the file."""
    key = _put(twin, f"invalid-{fault}.yaml", f"version: 1\nname: invalid-{fault}\n")
    s3, row = twin.client("s3"), Row()

    def is_explained() -> bool:
        found = s3.list_objects_v2(Bucket=deployment.DATA_BUCKET, Prefix=f"{key}.refused.txt")
        return bool(found.get("Contents"))

    _wait(is_explained, seconds=EVENT_SECONDS)
    _wait(lambda: waiting_requests(twin) == 0, seconds=EVENT_SECONDS)
    row.count(f"reasons beside {key}", found=int(is_explained()), wanted=1)
    row.add(compare_subjects([f"Trainflow: {key} was refused"], mail.subjects()))
    return row


def _lost_request(twin: Twin, fault: str, mail: Mail) -> Row:
    """A request that StartRun has given up: one message to the owner."""
    sqs, schedule = twin.client("sqs"), f"lost-{fault}"
    body = {"schedule": schedule, "scheduled_at": "2026-11-26T02:00:00Z", "spec": steps(max_steps=NUM_STEPS)}
    sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=LOST_REQUESTS)["QueueUrl"], MessageBody=json.dumps(body))
    _wait(lambda: waiting_requests(twin) == 0, seconds=EVENT_SECONDS)
    return compare_subjects([f"Trainflow: schedule {schedule} was not answered"], mail.subjects())


def _stop(twin: Twin, fault: str, mail: Mail) -> Row:
    """A training that is stopped: its row, its record and one message say so."""
    place, run_id = TwinRuns(twin), f"halted-{fault}-aa"
    start_all(twin, {run_id: steps(max_steps=600)})
    sfn, arn = twin.client("stepfunctions"), arn_of_run(twin, run_id)
    _wait(lambda: any(visit.name == "WatchTraining" for visit in visits(histories(sfn, arn)[0])), seconds=RUN_SECONDS)
    place.stop(run_id, reason=RunError(name="Stopped", message="On request.", what_to_do=""))
    place.settle()
    row = _compare_end(twin, run_id, RunStatus.ABORTED)
    row.add(compare_subjects([f"Trainflow: {run_id} ABORTED"], mail.subjects()))
    return row


def _idle_nodes(twin: Twin, _fault: str, mail: Mail) -> Row:
    """Nodes that no run has claimed for an hour are released, and one message says so."""
    twin.client("eks").update_nodegroup_config(
        clusterName=deployment.CLUSTER_NAME,
        nodegroupName=nodegroup_name(IDLE_TYPE),
        scalingConfig={"minSize": 0, "desiredSize": NUM_IDLE, "maxSize": NUM_IDLE},
    )
    now, to_item = datetime.now(UTC), TypeSerializer().serialize
    last = LastSurvey(surveyed_at=now - timedelta(minutes=5), idle_since={IDLE_TYPE: now - timedelta(hours=1)})
    item = {KEY: SURVEY_KEY, **last.model_dump(mode="json")}
    twin.client("dynamodb").put_item(
        TableName=deployment.RUN_TABLE, Item={name: to_item(value) for name, value in item.items()}
    )
    _wait(lambda: _desired(twin) == 0, seconds=EVENT_SECONDS)
    time.sleep(2 * SURVEY_SECONDS)  # so that surveys after that one have been made
    row = Row()
    if nodes := _desired(twin):
        row.add(Row(left=nodes, notes=[f"{nodes} idle nodes"]))
    row.add(compare_subjects([f"Trainflow: {NUM_IDLE} idle {IDLE_TYPE} released"], mail.subjects()))
    return row


EVENTS: Mapping[str, Callable[[Twin, str, Mail], Row]] = {
    "upload": _upload,
    "refused upload": _refused_upload,
    "lost request": _lost_request,
    "stop": _stop,
    "idle nodes": _idle_nodes,
}
"""Events by name. Together they invoke every function of events."""


def waiting_requests(twin: Twin) -> int:
    """Requests in the queue, and those that nothing could be made of."""
    sqs = twin.client("sqs")
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    num_waiting = 0
    for queue in (REQUESTS, LOST_REQUESTS):
        url = sqs.get_queue_url(QueueName=queue)["QueueUrl"]
        found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=names)["Attributes"]
        num_waiting += sum(int(found[name]) for name in names)
    return num_waiting


def _put(twin: Twin, name: str, text: str) -> str:
    key = f"runs/{name}"
    twin.client("s3").put_object(Bucket=deployment.DATA_BUCKET, Key=key, Body=text.encode())
    return key


def _desired(twin: Twin) -> int:
    found = twin.client("eks").describe_nodegroup(
        clusterName=deployment.CLUSTER_NAME, nodegroupName=nodegroup_name(IDLE_TYPE)
    )
    return int(found["nodegroup"]["scalingConfig"]["desiredSize"])


def _compare_end(twin: Twin, run_id: str, status: RunStatus) -> Row:
    """Whether the run table and the record have the end of a run, which CleanUp writes last."""

    def found() -> dict[str, str]:
        return {"row": _status_in_table(twin, run_id), "record": _status_in_record(twin, run_id)}

    _wait(lambda: set(found().values()) == {status.value}, seconds=EVENT_SECONDS)
    wrong = [f"the {name} of {run_id} says {each}" for name, each in found().items() if each != status.value]
    return Row(lost=len(wrong), notes=wrong)


def _status_in_table(twin: Twin, run_id: str) -> str:
    found = twin.client("dynamodb").get_item(TableName=deployment.RUN_TABLE, Key={KEY: {"S": run_id}})
    return str(found.get("Item", {}).get("status", {}).get("S"))


def _status_in_record(twin: Twin, run_id: str) -> str:
    s3, key = twin.client("s3"), f"runs/{run_id}/run.json"
    if not s3.list_objects_v2(Bucket=deployment.ARTIFACT_BUCKET, Prefix=key).get("Contents"):
        return "nothing"
    text = s3.get_object(Bucket=deployment.ARTIFACT_BUCKET, Key=key)["Body"].read()
    return RunRecord.model_validate_json(text).status.value


def _wait(condition: Callable[[], bool], *, seconds: float) -> None:
    """Return when the condition holds, or after a time; what is missing then is counted."""
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.5)
