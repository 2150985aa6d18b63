"""CleanUp, and the run table that lists the resources of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from botocore.exceptions import ClientError
from jsonschema import Draft202012Validator

from lambdas.backends import pytorchjob
from lambdas.backends.job import render
from lambdas.backends.kubernetes import pods
from lambdas.gateways import executions
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.gateways.runs import RunTable
from lambdas.handlers import clean_up, notify, tear_down, validate_run
from lambdas.logic.jobs import job_of
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import SPEC, run_of, run_on, spec_with
from tests.unit.lambdas.conftest import ARTIFACT_BUCKET, CONTEXT, NAMESPACE, Aws
from trainflow.errors import InvalidRunSpec, ServiceUnavailable
from trainflow.workflow.leftovers import Execution
from trainflow.workflow.run import Run, Stage
from trainflow.workflow.run_ended import RunEnded
from trainflow.workflow.run_record import RunRecord, RunStatus
from trainflow.workflow.run_table import row_of

TYPE = "trn1.32xlarge"
OTHER = "other-0123456789ab"

pytestmark = pytest.mark.usefixtures("begun_history")


def event_of(run: Run, status: str) -> dict[str, Any]:
    """EventBridge's event about a state machine that is encrypted with a customer's key: without input."""
    detail = {
        "executionArn": run.execution_arn,
        "stateMachineArn": "arn:aws:states:us-west-2:123456789012:stateMachine:training",
        "name": run.run_id,
        "status": status,
        "startDate": 1795262400000,
        "stopDate": 1795266000000,
        "input": None,
        "inputDetails": None,
        "error": None,
    }
    return {"source": "aws.states", "detail-type": "Step Functions Execution Status Change", "detail": detail}


def clean(run: Run, status: str = "ABORTED") -> dict[str, Any]:
    return clean_up.lambda_handler(event_of(run, status), CONTEXT)


def running(aws: Aws, cluster: FakeKubernetesApi, **fields: Any) -> Run:
    """A run in the middle of its training."""
    run = run_of(spec_with(**fields))
    aws.add_nodegroup(TYPE, desired=2)
    aws.table.begin(row_of(run))
    backend = KubernetesCluster(cluster, namespace=NAMESPACE)
    backend.claim_nodes(run.run_id, TYPE, 2)
    backend.create(render(job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/")))
    return run


def status_of(aws: Aws, run: Run) -> RunStatus | None:
    row = aws.table.find(run.run_id)
    return row.status if row else None


def test_an_aborted_run_is_torn_down_and_a_message_is_sent(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster)
    assert clean(run) == {"run_id": run.run_id, "deleted_jobs": [f"{run.run_id}-training-1"], "nodes_released": 2}
    assert cluster.objects == {}
    assert aws.desired(TYPE) == 0
    assert status_of(aws, run) is RunStatus.ABORTED
    ((subject, message),) = aws.messages
    assert subject == f"Trainflow: {run.run_id} ABORTED"
    lines = message.splitlines()
    assert {
        "What happened: the run was stopped.",
        "What was done: its jobs are deleted, and the nodes that no other run needs are released.",
        f"What to do: nothing, or continue it, if it has saved a checkpoint: trainflow resume {run.run_id}",
        f"Last lines: s3://artifacts/runs/{run.run_id}/logs/",
        f"Logs: trainflow logs {run.run_id}",
        f"Its ARN: {run.execution_arn}",
    } <= set(lines)


def test_cleaning_up_twice_sends_one_message(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster)
    clean(run)
    assert clean(run)["deleted_jobs"] == []
    assert len(aws.messages) == 1


def test_the_message_is_the_same_when_an_earlier_call_released_everything_and_crashed(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    run = running(aws, cluster)
    tear_down.lambda_handler({"run": run.model_dump(mode="json")}, CONTEXT)
    assert (clean(run)["deleted_jobs"], cluster.objects) == ([], {})
    assert "What was done: its jobs are deleted, and the nodes" in aws.messages[0][1]


def test_cleaning_up_is_what_tearing_down_is(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster)
    KubernetesCluster(cluster, namespace=NAMESPACE).claim_nodes(OTHER, TYPE, 1)
    cleaned = clean(run)
    assert (cleaned["nodes_released"], aws.desired(TYPE)) == (0, 2), "another run's nodes stay"
    torn_down = tear_down.lambda_handler({"run": run.model_dump(mode="json")}, CONTEXT)
    assert (torn_down["deleted_jobs"], torn_down["nodes_released"]) == ([], 0)


def test_a_run_that_a_person_stops_is_torn_down_whatever_its_spec_sets(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster, teardown={"on_success": False, "on_failure": False})
    assert clean(run)["nodes_released"] == 2


def test_a_run_that_timed_out_keeps_what_its_spec_keeps(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster, teardown__on_failure=False)
    assert clean(run, "TIMED_OUT") == {"run_id": run.run_id, "deleted_jobs": [], "nodes_released": 0}
    assert aws.desired(TYPE) == 2
    assert status_of(aws, run) is RunStatus.TIMED_OUT
    assert "they continue to cost money" in aws.messages[0][1]


def test_a_run_that_timed_out_is_torn_down_otherwise(aws: Aws, cluster: FakeKubernetesApi) -> None:
    assert clean(running(aws, cluster), "TIMED_OUT")["nodes_released"] == 2


def test_a_run_whose_history_was_full_is_torn_down_though_it_could_not_see_to_itself(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    run = running(aws, cluster)
    event = event_of(run, "FAILED")
    event["detail"]["error"] = "States.Runtime"
    answer = clean_up.lambda_handler(event, CONTEXT)
    assert answer == {"run_id": run.run_id, "deleted_jobs": [f"{run.run_id}-training-1"], "nodes_released": 2}
    row = aws.table.find(run.run_id)
    assert row is not None
    assert (row.status, row.error_name) == (RunStatus.FAILED, "States.Runtime")
    ((subject, message),) = aws.messages
    assert subject == f"Trainflow: {run.run_id} FAILED"
    assert "Error: States.Runtime\nWhat happened: Step Functions ended the run's execution" in message
    assert "What was done: its jobs are deleted, and the nodes that no other run needs are released." in message


def test_such_a_run_keeps_what_its_spec_keeps(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster, teardown__on_failure=False)
    assert clean(run, "FAILED")["deleted_jobs"] == []
    assert (status_of(aws, run), aws.desired(TYPE)) == (RunStatus.FAILED, 2)
    assert "they continue to cost money" in aws.messages[0][1]


@pytest.mark.parametrize("status", ["FAILED", "SUCCEEDED"])
def test_what_a_run_keeps_after_its_end_is_left_alone(aws: Aws, cluster: FakeKubernetesApi, status: str) -> None:
    run = running(aws, cluster, teardown={"on_failure": False, "on_success": False})
    notified(run, status, error={"Error": "WorkerFailed", "Cause": "{}"})
    assert clean(run, status) == {"run_id": run.run_id, "deleted_jobs": [], "nodes_released": 0}
    assert (len(aws.messages), cluster.names("jobs")) == (1, [f"{run.run_id}-training-1"])


@pytest.mark.parametrize("status", ["FAILED", "SUCCEEDED"])
def test_a_tear_down_that_failed_in_the_run_is_repeated(aws: Aws, cluster: FakeKubernetesApi, status: str) -> None:
    run = running(aws, cluster)
    notified(run, status, error={"Error": "WorkerFailed", "Cause": "{}"})
    assert clean(run, status) == {
        "run_id": run.run_id,
        "deleted_jobs": [f"{run.run_id}-training-1"],
        "nodes_released": 2,
    }
    assert (len(aws.messages), cluster.objects, aws.desired(TYPE)) == (1, {}, 0)
    assert clean(run, status)["nodes_released"] == 0


@pytest.mark.parametrize(
    ("status", "error", "told"),
    [("SUCCEEDED", None, True), ("SUCCEEDED", None, False), ("FAILED", "WorkerFailed", True)],
)
def test_the_end_of_a_run_whose_own_note_was_not_written_is_in_the_table_and_not_told_again(
    aws: Aws,
    cluster: FakeKubernetesApi,
    monkeypatch: pytest.MonkeyPatch,
    status: str,
    error: str | None,
    told: bool,
) -> None:
    """Otherwise the row says for ever that it runs, and its claim on nodes counts."""
    run = running(aws, cluster)
    if told:
        with monkeypatch.context() as outage:
            outage.setattr(RunTable, "finish", unavailable)
            notified(run, status, error={"Error": "WorkerFailed", "Cause": "{}"} if error else None)
    assert (status_of(aws, run), len(aws.messages)) == (RunStatus.RUNNING, int(told))
    event, before = event_of(run, status), datetime.now(UTC)
    event["detail"] |= {"error": error, "stopDate": round(before.timestamp() * 1000)}
    for _ in range(2):
        clean_up.lambda_handler(event, CONTEXT)
        row = aws.table.find(run.run_id)
        assert row is not None
        assert (row.status.value, row.error_name) == (status, error)
        assert row.ended_at is not None
        assert row.ended_at >= before, "everything has been released by then"
    assert (len(aws.messages), cluster.objects, aws.desired(TYPE)) == (int(told), {}, 0)


def unavailable(*_arguments: Any, **_fields: Any) -> None:
    raise ServiceUnavailable("DynamoDB did not answer.")


def test_a_row_is_not_written_before_everything_is_released(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    """The survey takes such a row for a clean-up that is done."""
    run = running(aws, cluster)
    refusing("UpdateNodegroupConfig", "ThrottlingException")
    with pytest.raises(ServiceUnavailable):
        clean(run, "SUCCEEDED")
    assert status_of(aws, run) is RunStatus.RUNNING
    refusing("UpdateNodegroupConfig", None)
    clean(run, "SUCCEEDED")
    assert (status_of(aws, run), aws.desired(TYPE)) == (RunStatus.SUCCEEDED, 0)


def test_a_record_that_cannot_be_written_does_not_leave_the_row_of_a_success_running(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    run = running(aws, cluster)
    refusing("PutObject", "AccessDenied")
    with pytest.raises(ClientError, match="AccessDenied"):
        clean(run, "SUCCEEDED")
    assert status_of(aws, run) is RunStatus.SUCCEEDED


def test_a_second_failure_of_a_redriven_run_is_told(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The note in the table is of the first one."""
    run = running(aws, cluster)
    notified(run, "FAILED", error={"Error": "WorkerFailed", "Cause": "{}"})
    aws.table.reopen(run.run_id, execution_arn=run.execution_arn)
    redriven(monkeypatch, status=RunStatus.FAILED, at=STOPPED_AT - timedelta(minutes=5))
    clean(run, "FAILED")
    assert (len(aws.messages), status_of(aws, run)) == (2, RunStatus.FAILED)


def test_an_execution_that_was_refused_takes_nothing_from_the_run_of_its_name(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    run = running(aws, cluster)
    event = event_of(run, "FAILED")
    event["detail"] |= {"name": run.run_id.upper(), "executionArn": run.execution_arn.replace("bert", "BERT")}
    assert clean_up.lambda_handler(event, CONTEXT)["run_id"] is None
    assert (status_of(aws, run), aws.desired(TYPE)) == (RunStatus.RUNNING, 2)


@pytest.mark.parametrize(
    ("name", "run_id"), [("bert-0123456789ab", "bert-0123456789ab"), ("Not_A_Run", None), ("x" * 80, None)]
)
def test_an_execution_that_was_no_run_yet_has_made_nothing(
    aws: Aws, cluster: FakeKubernetesApi, name: str, run_id: str | None
) -> None:
    event = event_of(run_of(), "ABORTED")
    event["detail"]["name"] = name
    assert clean_up.lambda_handler(event, CONTEXT) == {"run_id": run_id, "deleted_jobs": [], "nodes_released": 0}
    assert aws.messages == []
    assert [found.status for found in records(aws)] == ([RunStatus.ABORTED] if run_id else [])


def records(aws: Aws) -> list[RunRecord]:
    """Every record in the artifact bucket."""
    s3 = aws.client("s3")
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=ARTIFACT_BUCKET).get("Contents", ())]
    return [
        RunRecord.model_validate_json(s3.get_object(Bucket=ARTIFACT_BUCKET, Key=key)["Body"].read())
        for key in keys
        if key.endswith("/run.json")
    ]


def test_every_end_is_recorded_with_the_time_from_step_functions(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster)
    event = event_of(run, "ABORTED")
    event["detail"] |= {"error": "Mistaken", "cause": "The wrong data."}
    clean_up.lambda_handler(event, CONTEXT)
    (record,) = records(aws)
    assert (record.run_id, record.status) == (run.run_id, RunStatus.ABORTED)
    assert record.ended_at == datetime.fromtimestamp(1795266000, UTC)
    assert record.error is not None
    assert (record.error.name, record.error.message) == ("Mistaken", "The wrong data.")
    assert f"s3://{ARTIFACT_BUCKET}/runs/{run.run_id}/report.html" in aws.messages[0][1]


@pytest.mark.parametrize("status", ["SUCCEEDED", "FAILED"])
def test_the_record_of_a_run_that_recorded_its_end_is_written_again(
    aws: Aws, cluster: FakeKubernetesApi, status: str
) -> None:
    run = running(aws, cluster)
    notified(run, status, error={"Error": "WorkerFailed", "Cause": "{}"})
    for _ in range(2):
        clean(run, status)
        assert [record.status.value for record in records(aws)] == [status]
    assert len(aws.messages) == 1


def test_a_record_that_cannot_be_written_is_tried_again_and_holds_up_nothing(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    run = running(aws, cluster)
    refusing("PutObject", "AccessDenied")
    with pytest.raises(ClientError, match="AccessDenied"):
        clean(run)
    assert (aws.desired(TYPE), status_of(aws, run)) == (0, RunStatus.ABORTED)
    assert "report.html" not in aws.messages[0][1]
    refusing("PutObject", None)
    clean(run)
    assert (len(aws.messages), [record.status for record in records(aws)]) == (1, [RunStatus.ABORTED])


@pytest.fixture
def events(aws: Aws) -> Callable[[], list[dict[str, Any]]]:
    """The events of a rule with the documented pattern, for every end, that have arrived in its queue."""
    text = re.search(r"```json\n(.*?)```", Path("docs/events.md").read_text(), re.DOTALL)
    assert text is not None
    pattern = json.loads(text[1])
    pattern["detail"] = {"deployment": ["twin"]}
    sqs, bus = aws.client("sqs"), aws.client("events")
    url = sqs.create_queue(QueueName="ends")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    bus.put_rule(Name="ends", EventPattern=json.dumps(pattern))
    bus.put_targets(Rule="ends", Targets=[{"Id": "queue", "Arn": arn}])

    def received() -> list[dict[str, Any]]:
        messages = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages", [])
        return [json.loads(message["Body"]) for message in messages]

    return received


def test_every_end_is_an_event_with_what_the_record_tells(
    aws: Aws, cluster: FakeKubernetesApi, events: Callable[[], list[dict[str, Any]]]
) -> None:
    run = running(aws, cluster)
    clean(run, "TIMED_OUT")
    clean(run, "SUCCEEDED")
    first, second = events()
    detail = RunEnded.model_validate(first["detail"])
    schema = json.loads(Path("config/run-ended.schema.json").read_text())
    Draft202012Validator.check_schema(schema)
    for event in (first, second):
        jsonschema.validate(event["detail"], schema)
        jsonschema.validate({**event["detail"], "added_later": 1}, schema)
    with pytest.raises(jsonschema.ValidationError, match="'run_id' is a required property"):
        jsonschema.validate({name: value for name, value in first["detail"].items() if name != "run_id"}, schema)
    assert (first["source"], first["detail-type"]) == ("trainflow", "Trainflow Run Ended")
    assert (detail.run_id, detail.status, detail.deployment) == (run.run_id, RunStatus.TIMED_OUT, "twin")
    assert detail.ended_at == datetime(2026, 11, 21, 13, tzinfo=UTC)
    assert detail.folder == f"s3://{ARTIFACT_BUCKET}/runs/{run.run_id}/"
    assert detail.execution_link.endswith(run.execution_arn)
    assert aws.client("s3").head_object(Bucket=ARTIFACT_BUCKET, Key=f"runs/{run.run_id}/report.html")
    assert second["detail"]["status"] == "SUCCEEDED"
    assert second["detail"]["error"] is None


def test_an_end_without_a_record_is_no_event_until_the_record_is_written(
    aws: Aws,
    cluster: FakeKubernetesApi,
    events: Callable[[], list[dict[str, Any]]],
    refusing: Callable[[str, str | None], None],
) -> None:
    run = running(aws, cluster)
    refusing("PutObject", "SlowDown")
    with pytest.raises(ServiceUnavailable):
        clean(run)
    assert events() == []
    refusing("PutObject", None)
    clean(run)
    assert [event["detail"]["status"] for event in events()] == ["ABORTED"]


def test_an_event_that_the_bus_does_not_take_is_sent_again(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(aws, cluster)
    answer = {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "InternalFailure", "ErrorMessage": "oops"}]}
    monkeypatch.setattr(aws.client("events"), "put_events", lambda Entries: answer)
    with pytest.raises(ServiceUnavailable, match=r"events:PutEvents .*InternalFailure: oops"):
        clean(run)


def test_the_documented_fields_are_those_of_the_event() -> None:
    _, _, table = Path("docs/events.md").read_text().partition("| field | meaning |")
    rows = [line.split("|")[1] for line in table.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    documented = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert sorted(documented) == sorted(RunEnded.model_fields)


def test_a_missing_node_group_does_not_prevent_the_message(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = run_of()
    aws.table.begin(row_of(run))
    assert clean(run)["nodes_released"] == 0
    assert status_of(aws, run) is RunStatus.ABORTED


def test_a_message_that_could_not_be_sent_is_sent_by_the_next_try(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    run = running(aws, cluster)
    refusing("Publish", "Throttling")
    with pytest.raises(ServiceUnavailable):
        clean(run)
    refusing("Publish", None)
    clean(run)
    assert len(aws.messages) == 1
    assert status_of(aws, run) is RunStatus.ABORTED


def validated(spec: dict[str, Any], run: Run) -> dict[str, Any]:
    event = {
        "spec": spec,
        "execution_name": run.run_id,
        "execution_arn": run.execution_arn,
        "started_at": run.started_at.isoformat(),
    }
    return validate_run.lambda_handler(event, CONTEXT)


def notified(run: Run, status: str, **fields: Any) -> None:
    event = {"run_id": run.run_id, "execution_arn": run.execution_arn, "status": status, **fields}
    notify.lambda_handler(event, CONTEXT)


WITHOUT_DATA = {name: value for name, value in SPEC.items() if name != "dataset"}


def test_a_run_is_in_the_table_from_its_validation_to_its_end(aws: Aws) -> None:
    run = run_of(WITHOUT_DATA)
    validated(WITHOUT_DATA, run)
    assert aws.table.find(run.run_id) == row_of(run)
    notified(run, "FAILED", error={"Error": "WorkerFailed", "Cause": "{}"})
    row = aws.table.find(run.run_id)
    assert row is not None
    assert (row.status, row.error_name) == (RunStatus.FAILED, "WorkerFailed")
    assert row.ended_at is not None


@pytest.mark.parametrize("code", [".", "./my-project", f"https://host/repository.git@{'0' * 40}"])
def test_code_that_nobody_packed_is_refused_before_the_run_is_noted(aws: Aws, code: str) -> None:
    run = run_of(WITHOUT_DATA)
    workload = {**WITHOUT_DATA["workload"], "code": code}
    with pytest.raises(InvalidRunSpec, match=r"workload\.code.*packed.*`trainflow run`"):
        validated({**WITHOUT_DATA, "workload": workload}, run)
    assert aws.table.find(run.run_id) is None


def test_packed_code_is_part_of_the_run(aws: Aws) -> None:
    run, url = run_of(WITHOUT_DATA), f"s3://artifacts/code/{'0' * 64}.tar.gz"
    made = validated({**WITHOUT_DATA, "workload": {**WITHOUT_DATA["workload"], "code": url}}, run)
    assert made["run"]["spec"]["workload"]["code"] == url


def test_a_late_second_try_of_the_validation_does_not_bring_a_run_back(aws: Aws) -> None:
    run = run_of(WITHOUT_DATA)
    validated(WITHOUT_DATA, run)
    notified(run, "SUCCEEDED")
    validated(WITHOUT_DATA, run)
    assert status_of(aws, run) is RunStatus.SUCCEEDED


def test_a_run_that_was_stopped_before_its_validation_ended_is_not_left_running(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = run_of(WITHOUT_DATA)
    clean(run)
    monkeypatch.setattr(executions, "describe", lambda _arn: Execution(status=RunStatus.ABORTED))
    validated(WITHOUT_DATA, run)
    row = aws.table.find(run.run_id)
    assert row is not None
    assert (row.status, row.needs_nodes) == (RunStatus.ABORTED, False)
    assert row.ended_at is not None
    validated(WITHOUT_DATA, run)
    assert aws.table.find(run.run_id) == row, "a second try changes nothing"


def test_a_validation_does_not_fail_because_the_status_of_its_execution_cannot_be_read(
    aws: Aws, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_arn: str) -> Execution:
        raise ServiceUnavailable("throttled")

    monkeypatch.setattr(executions, "describe", refuse)
    run = run_of(WITHOUT_DATA)
    validated(WITHOUT_DATA, run)
    assert status_of(aws, run) is RunStatus.RUNNING


def test_a_name_that_step_functions_has_forgotten_may_come_again(aws: Aws) -> None:
    run = run_of(WITHOUT_DATA)
    validated(WITHOUT_DATA, run)
    notified(run, "SUCCEEDED")
    again = run.model_copy(update={"started_at": run.started_at + timedelta(days=91)})
    validated(WITHOUT_DATA, again)
    assert aws.table.find(run.run_id) == row_of(again)


def test_a_refused_run_is_reported_and_has_no_row(aws: Aws) -> None:
    run = run_of()
    notified(run, "FAILED", error={"Error": "InvalidRunSpec", "Cause": "{}"})
    assert aws.table.find(run.run_id) is None
    assert len(aws.messages) == 1


def test_a_run_is_not_validated_while_the_table_does_not_answer(
    aws: Aws, refusing: Callable[[str, str | None], None]
) -> None:
    refusing("PutItem", "ProvisionedThroughputExceededException")
    with pytest.raises(ServiceUnavailable):
        validated(WITHOUT_DATA, run_of(WITHOUT_DATA))


def test_the_message_about_a_runs_end_is_sent_although_the_table_does_not_answer(
    aws: Aws, refusing: Callable[[str, str | None], None]
) -> None:
    refusing("UpdateItem", "ThrottlingException")
    notified(run_of(), "SUCCEEDED")
    assert len(aws.messages) == 1


def put_pod(cluster: FakeKubernetesApi, run: Run, name: str, *, phase: str, index: int = 0) -> None:
    """A pod of the run's training, with a log."""
    job = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/")
    labels = {**pods.labels(job), "batch.kubernetes.io/job-completion-index": str(index)}
    cluster.add("pods", {"metadata": {"name": name, "labels": labels}, "spec": {}, "status": {"phase": phase}})
    cluster.logs[name] = f"2026-11-21T12:00:00.5Z hello from {name}\n"


def kept_logs(aws: Aws, run: Run) -> dict[str, str]:
    s3, prefix = aws.client("s3"), f"runs/{run.run_id}/logs/"
    keys = [each["Key"] for each in s3.list_objects_v2(Bucket=ARTIFACT_BUCKET, Prefix=prefix).get("Contents", ())]
    return {
        key.removeprefix(prefix): s3.get_object(Bucket=ARTIFACT_BUCKET, Key=key)["Body"].read().decode() for key in keys
    }


@pytest.mark.parametrize("way", ["stopped", "torn down", "restarted"])
def test_the_last_lines_of_rank_0_and_of_failed_pods_outlive_them(
    aws: Aws, cluster: FakeKubernetesApi, way: str
) -> None:
    run = running(aws, cluster)
    put_pod(cluster, run, "rank0", phase="Running")
    put_pod(cluster, run, "worker", phase="Running", index=1)
    put_pod(cluster, run, "failed", phase="Failed", index=2)
    event = {"run": run.model_dump(mode="json")}
    if way == "stopped":
        clean(run)
    elif way == "torn down":
        tear_down.lambda_handler(event, CONTEXT)
    else:
        job = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/").ref
        tear_down.lambda_handler({**event, "job": job.model_dump(mode="json")}, CONTEXT)
    assert cluster.names("jobs") == []
    assert kept_logs(aws, run) == {
        f"{name}.log": f"2026-11-21T12:00:00.500000+00:00 hello from {name}\n" for name in ("rank0", "failed")
    }


@pytest.mark.parametrize("way", ["stopped", "torn down"])
def test_the_last_lines_of_an_elastic_rank_0_are_kept_from_the_announced_pod(
    aws: Aws, cluster: FakeKubernetesApi, way: str
) -> None:
    run = run_on("pytorchjob", elastic=True)
    aws.add_nodegroup(TYPE, desired=2)
    aws.table.begin(row_of(run))
    job = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://a/")
    KubernetesCluster(cluster, namespace=NAMESPACE).create(pytorchjob.render(job))
    put_pod(cluster, run, "worker-0", phase="Running", index=0)
    put_pod(cluster, run, "worker-3", phase="Running", index=3)
    key = f"runs/{run.run_id}/rank0/{job.ref.name}"
    aws.client("s3").put_object(Bucket=ARTIFACT_BUCKET, Key=key, Body=b"worker-3")
    if way == "stopped":
        clean(run)
    else:
        tear_down.lambda_handler({"run": run.model_dump(mode="json")}, CONTEXT)
    assert "worker-3.log" in kept_logs(aws, run)


def test_a_log_that_cannot_be_had_keeps_no_node(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    run = running(aws, cluster)
    put_pod(cluster, run, "rank0", phase="Running")
    refusing("PutObject", "AccessDenied")
    with pytest.raises(ClientError):  # of the record, in the end
        clean(run)
    assert aws.desired(TYPE) == 0
    assert kept_logs(aws, run) == {}


STOPPED_AT = datetime.fromtimestamp(1795266000, UTC)
"""The end that the events above are about."""


def redriven(monkeypatch: pytest.MonkeyPatch, *, status: RunStatus, at: datetime | None) -> None:
    found = Execution(status=status, redriven_at=at)
    monkeypatch.setattr(executions, "describe", lambda _arn: found)


def test_a_late_clean_up_takes_nothing_from_a_redriven_run(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(aws, cluster)
    of_run = dict(cluster.objects)
    redriven(monkeypatch, status=RunStatus.RUNNING, at=STOPPED_AT + timedelta(minutes=5))
    assert clean(run) == {"run_id": run.run_id, "deleted_jobs": [], "nodes_released": 0}
    assert cluster.objects == of_run
    assert (aws.desired(TYPE), aws.messages) == (2, [])


def test_the_row_of_a_run_that_is_redriven_says_that_it_runs(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = running(aws, cluster)
    clean(run)
    told = len(aws.messages)
    redriven(monkeypatch, status=RunStatus.ABORTED, at=STOPPED_AT + timedelta(minutes=5))
    clean(run, "RUNNING")  # late: it has ended once more
    assert status_of(aws, run) is RunStatus.ABORTED
    redriven(monkeypatch, status=RunStatus.RUNNING, at=STOPPED_AT + timedelta(minutes=5))
    assert clean(run, "RUNNING")["deleted_jobs"] == []
    row = aws.table.find(run.run_id)
    assert row is not None
    assert (row.status, row.ended_at, row.error_name) == (RunStatus.RUNNING, None, None)
    assert len(aws.messages) == told


@pytest.mark.parametrize("crashes", [False, True])
def test_a_run_that_is_redriven_while_it_is_cleaned_up_is_in_the_table_as_running(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch, crashes: bool
) -> None:
    """The event that it runs again comes before its end is in the table, so it finds nothing to change."""
    run = running(aws, cluster)
    finish = RunTable.finish

    def finish_late(table: RunTable, run_id: str, **fields: Any) -> None:
        redriven(monkeypatch, status=RunStatus.RUNNING, at=STOPPED_AT + timedelta(minutes=5))
        clean(run, "RUNNING")
        assert status_of(aws, run) is RunStatus.RUNNING
        finish(table, run_id, **fields)
        if crashes:
            raise ServiceUnavailable("The function ends here.")

    monkeypatch.setattr(RunTable, "finish", finish_late)
    if crashes:
        with pytest.raises(ServiceUnavailable):
            clean(run)
    clean(run)  # Lambda may invoke it twice
    row = aws.table.find(run.run_id)
    assert row is not None
    assert (row.status, row.ended_at, row.error_name) == (RunStatus.RUNNING, None, None)
    assert len(aws.messages) == 1


def test_a_run_that_begins_has_nothing_to_clean_up(aws: Aws, cluster: FakeKubernetesApi) -> None:
    run = running(aws, cluster)
    of_run = dict(cluster.objects)
    assert clean(run, "RUNNING") == {"run_id": run.run_id, "deleted_jobs": [], "nodes_released": 0}
    assert (cluster.objects, aws.messages) == (of_run, [])


@pytest.mark.parametrize("at", [None, STOPPED_AT - timedelta(hours=1)], ids=["never redriven", "redriven before"])
def test_a_description_that_is_older_than_the_event_stops_no_clean_up(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch, at: datetime | None
) -> None:
    run = running(aws, cluster)
    redriven(monkeypatch, status=RunStatus.RUNNING, at=at)
    assert clean(run)["deleted_jobs"] == [f"{run.run_id}-training-1"]
    assert cluster.objects == {}


def test_a_run_that_is_stopped_redriven_and_stopped_again_is_told_of_twice(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    run = running(aws, cluster)
    clean(run)
    again = event_of(run, "ABORTED")
    again["detail"]["stopDate"] = round((datetime.now(UTC) + timedelta(hours=1)).timestamp() * 1000)
    backend = KubernetesCluster(cluster, namespace=NAMESPACE)
    backend.claim_nodes(run.run_id, TYPE, 2)
    assert clean_up.lambda_handler(again, CONTEXT)["deleted_jobs"] == []
    assert cluster.objects == {}
    assert len(aws.messages) == 2


def test_nothing_is_taken_while_step_functions_does_not_answer(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    run = running(aws, cluster)
    of_run = dict(cluster.objects)
    refusing("DescribeExecution", "ThrottlingException")
    with pytest.raises(ServiceUnavailable):
        clean(run)
    assert cluster.objects == of_run
