"""Five uploads at once, one of them hostile: the others start at once, and its uploader and the owner learn of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from benchmarks.fault_injection import Mail, Plan, twin_with
from local.aws.deployment import DATA_BUCKET, LOST_REQUESTS, REQUESTS
from local.aws.faults import Fault
from local.place import TwinRuns
from local.twin import Twin
from tests.integration.test_runs import steps_spec
from tests.waiting import wait_until
from trainflow.workflow.run_record import RunError

POISONS: dict[str, Any] = {
    "pattern": {"progress": {"pattern": "a?" * 40 + "a" * 40 + r"(?P<step>\d)!(?=b)"}},
    "crash": Fault(error="Runtime.ExitError"),
    "time-out": Fault(error="Sandbox.Timedout"),
    "exception": Fault(error="KeyError"),
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return Plan()


@pytest.fixture(scope="module")
def twin(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Twin]:
    with twin_with(plan, tmp_path_factory.mktemp("twin"), time_scale=100) as running:
        yield running


def upload(twin: Twin, name: str, **fields: Any) -> None:
    text = yaml.safe_dump(steps_spec(max_steps=600) | {"name": name} | fields)
    twin.client("s3").put_object(Bucket=DATA_BUCKET, Key=f"runs/{name}.yaml", Body=text.encode())


def refusals(twin: Twin, name: str) -> list[str]:
    s3 = twin.client("s3")
    found = s3.list_objects_v2(Bucket=DATA_BUCKET, Prefix=f"runs/{name}.yaml.").get("Contents", ())
    return [s3.get_object(Bucket=DATA_BUCKET, Key=each["Key"])["Body"].read().decode() for each in found]


def waiting(twin: Twin) -> int:
    sqs, counts = twin.client("sqs"), ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    urls = [sqs.get_queue_url(QueueName=queue)["QueueUrl"] for queue in (REQUESTS, LOST_REQUESTS)]
    found = [sqs.get_queue_attributes(QueueUrl=url, AttributeNames=counts)["Attributes"] for url in urls]
    return sum(int(queue[count]) for queue in found for count in counts)


def fail_for(name: str, poison: Any) -> Any:
    """A plan in which StartRun fails each time over the request that names it."""
    return lambda function, event: (
        poison if function == "StartRun" and name in json.dumps(event) and isinstance(poison, Fault) else None
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", POISONS)
def test_four_of_five_uploads_start_and_the_hostile_one_is_reported_once(twin: Twin, plan: Plan, kind: str) -> None:
    place, mail, poison, evil = TwinRuns(twin), Mail(twin, kind), POISONS[kind], f"evil-{kind}"
    names = [f"{kind}-good-{number}" for number in range(4)]
    subjects: list[str] = []

    def runs() -> list[str]:
        return [run.run_id for run in place.runs() if run.run_id.startswith((f"{kind}-good-", evil))]

    with plan.replaced_for_events(fail_for(evil, poison)):
        upload(twin, evil, **({} if isinstance(poison, Fault) else poison))
        for name in names:
            upload(twin, name)
        wait_until(lambda: len(runs()) == 4)
        wait_until(lambda: refusals(twin, evil) != [] and waiting(twin) == 0)
        for run_id in runs():
            place.stop(run_id, reason=RunError(name="Stopped", message="On request.", what_to_do=""))
        place.settle()
    assert sorted(run_id.rsplit("-", 1)[0] for run_id in runs()) == names
    (text,) = refusals(twin, evil)
    subjects += mail.subjects()
    said = "was refused" if kind == "pattern" else "was not answered"
    assert [subject for subject in subjects if "evil" in subject] == [f"Trainflow: runs/{evil}.yaml {said}"]
    assert "look-ahead" in text if kind == "pattern" else "trainflow list" in text


def test_a_lost_request_of_a_schedule_is_reported_to_the_owner(twin: Twin, plan: Plan) -> None:
    mail, sqs, subjects = Mail(twin, "scheduled"), twin.client("sqs"), list[str]()
    body = {"schedule": "nightly", "scheduled_at": "2026-11-26T02:00:00Z", "spec": steps_spec(max_steps=2)}
    with plan.replaced_for_events(fail_for("nightly", POISONS["crash"])):
        sqs.send_message(QueueUrl=sqs.get_queue_url(QueueName=REQUESTS)["QueueUrl"], MessageBody=json.dumps(body))
        wait_until(lambda: bool(subjects.extend(mail.subjects()) or subjects) and waiting(twin) == 0)
    assert subjects == ["Trainflow: schedule nightly was not answered"]
