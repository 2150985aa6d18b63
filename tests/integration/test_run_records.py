"""The record and the report in S3: final after every ending, with the command's figures, and where people are sent.

Every run is executed again by the second engine, which has to take the same way with the same data.
"""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from moto.core import DEFAULT_ACCOUNT_ID
from moto.stepfunctions.parser.models import stepfunctions_parser_backends

from local.aws.deployment import ARTIFACT_BUCKET
from local.aws.server import REGION
from local.twin import Twin
from tests.integration.mails import Mails
from tests.integration.running import follow_run, replayed
from tests.integration.test_runs import steps_spec
from tests.waiting import wait_until
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord, RunStatus

FIGURES = (
    "run_id",
    "status",
    "error",
    "spec",
    "started_at",
    "ended_at",
    "compile",
    "training",
    "not_checked",
    "diagnostics",
)
"""What the record in S3 and the one on disk both tell. The command has watched the pods as well."""


@dataclass(frozen=True)
class Ended:
    """A run that is over."""

    local: RunRecord
    kept: RunRecord
    """The record in S3."""
    report: str
    message: str


Run = Callable[..., Ended]


@pytest.fixture
def run(twin: Twin, tmp_path: Path) -> Run:
    def start(spec: dict[str, Any], run_id: str) -> Ended:
        mails = Mails(twin)
        local = follow_run(twin, parse_run_spec(spec), run_id, folder=tmp_path / run_id)
        kept = RunRecord.model_validate_json(content(twin, f"runs/{run_id}/run.json"))
        report = content(twin, f"runs/{run_id}/report.html").decode()
        return Ended(local, kept, report, mails.end_of(local))

    return start


def content(twin: Twin, key: str) -> bytes:
    body: bytes = twin.client("s3").get_object(Bucket=ARTIFACT_BUCKET, Key=key)["Body"].read()
    return body


def assert_final(ended: Ended, status: RunStatus) -> None:
    assert ended.kept.status is status
    assert ended.kept.ended_at is not None
    kept, local = (json.loads(record.model_dump_json(include=set(FIGURES))) for record in (ended.kept, ended.local))
    assert kept == local
    states = {visit.name for visit in ended.kept.states}
    assert {visit.name for visit in ended.local.states if visit.execution == ended.local.run_id} == states
    assert [one.model_dump() for one in ended.kept.executions] == [one.model_dump() for one in ended.local.executions]
    assert ended.kept.run_id in ended.report
    links = re.findall(r'(?:src|href)="([^"]+)"', ended.report)
    assert all(link.startswith(("data:", "https://us-west-2.console.aws.amazon.com/")) for link in links), links


def assert_links_lead_somewhere(twin: Twin, message: str) -> None:
    """Every object and every execution that a message names is there."""
    urls = re.findall(r"s3://[^/\s]+/\S+", message)
    pages = re.findall(r"https://\S+", message)
    assert any(url.endswith("/run.json") for url in urls)
    assert any("report.html" in page for page in pages)
    s3, stepfunctions = twin.client("s3"), twin.client("stepfunctions")
    for url in urls:
        bucket, _, key = url.removeprefix("s3://").partition("/")
        if url.endswith("/"):
            assert s3.list_objects_v2(Bucket=bucket, Prefix=key)["KeyCount"] > 0, url
        else:
            assert s3.head_object(Bucket=bucket, Key=key)["ContentLength"] > 0, url
    for page in pages:
        split = urlsplit(page)
        if split.path.startswith("/s3/object/"):
            (prefix,) = parse_qs(split.query)["prefix"]
            assert s3.head_object(Bucket=split.path.rsplit("/", 1)[1], Key=prefix)["ContentLength"] > 0, page
        else:
            _, _, arn = split.fragment.partition("/executions/details/")
            assert stepfunctions.describe_execution(executionArn=arn)["status"] != "RUNNING", page


def test_of_a_run_that_succeeds(run: Run, twin: Twin) -> None:
    ended = run(steps_spec(max_steps=7), "steps-000000000a01")
    assert_final(ended, RunStatus.SUCCEEDED)
    assert replayed(twin, "steps-000000000a01") == ["steps-000000000a01", "steps-000000000a01-training-1-1"]
    assert ended.kept.training is not None
    assert (ended.kept.training.steps, ended.kept.error) == (7, None)
    assert ended.kept.training.sequences_per_second
    assert ended.kept.metrics_published is not None
    assert ended.kept.metrics_published.datapoints == 7
    assert ended.kept.states[-1].name == "RunSucceeded"
    assert_links_lead_somewhere(twin, ended.message)


def test_of_a_run_that_fails(run: Run, twin: Twin) -> None:
    ended = run(steps_spec(exit_code=1), "steps-000000000a02")
    assert_final(ended, RunStatus.FAILED)
    assert replayed(twin, "steps-000000000a02") == ["steps-000000000a02", "steps-000000000a02-training-1-1"]
    assert ended.kept.error is not None
    assert ended.kept.error.name == "ScriptFailed"
    assert "the flux capacitor is missing" in ended.report
    assert [pod.phase for pod in ended.kept.jobs["training"].pods][:1] == ["Failed"]
    assert_links_lead_somewhere(twin, ended.message)


def test_of_a_spec_that_is_refused(run: Run, twin: Twin) -> None:
    """The command checks a spec before it starts one; the console does not."""
    assert twin.deployment is not None
    mails = Mails(twin)
    stepfunctions = twin.client("stepfunctions")
    arn = stepfunctions.start_execution(
        stateMachineArn=twin.deployment.address.state_machine_arn, name="refused", input='{"version": 1}'
    )["executionArn"]
    wait_until(lambda: stepfunctions.describe_execution(executionArn=arn)["status"] == "FAILED")
    twin.aws.targets.drain(30)
    record = RunRecord.model_validate_json(content(twin, "runs/refused/run.json"))
    assert (record.status, record.error and record.error.name) == (RunStatus.FAILED, "InvalidRunSpec")
    assert replayed(twin, "refused") == ["refused"]
    assert record.ended_at is not None
    assert_links_lead_somewhere(twin, mails.end_of(record))


@pytest.mark.parametrize(("number", "status"), [(3, RunStatus.ABORTED), (4, RunStatus.TIMED_OUT)])
def test_of_a_run_that_is_ended_from_outside(run: Run, twin: Twin, number: int, status: RunStatus) -> None:
    run_id = f"steps-000000000a0{number}"
    assert twin.deployment is not None
    arn = twin.deployment.address.state_machine_arn.replace(":stateMachine:", ":execution:") + f":{run_id}"

    def end() -> None:
        wait_until(lambda: f"runs/{run_id}/steps.json" in keys(twin))
        if status is RunStatus.ABORTED:
            twin.client("stepfunctions").stop_execution(executionArn=arn, error="Mistaken", cause="The wrong data.")
        else:
            time_out(arn)

    ender = threading.Thread(target=end)
    ender.start()
    ended = run(steps_spec(max_steps=600, seconds_per_step=0.1), run_id)
    ender.join()

    assert_final(ended, status)
    assert replayed(twin, run_id) == [run_id, f"{run_id}-training-1-1"]
    assert ended.kept.training is not None
    assert ended.kept.training.steps > 0
    assert ended.kept.states[-1].execution == run_id
    assert ended.kept.error is not None
    assert ended.kept.error.name == ("Mistaken" if status is RunStatus.ABORTED else "States.Timeout")
    assert_links_lead_somewhere(twin, ended.message)


def time_out(arn: str) -> None:
    """What moto does when an execution has reached its time limit, at a moment of the test's choosing."""
    backend = stepfunctions_parser_backends[DEFAULT_ACCOUNT_ID][REGION]
    (execution,) = [one for one in backend._get_executions() if one.execution_arn == arn]
    execution.exec_worker.env.set_timed_out()


def keys(twin: Twin) -> set[str]:
    found = twin.client("s3").list_objects_v2(Bucket=ARTIFACT_BUCKET).get("Contents", ())
    return {each["Key"] for each in found}
