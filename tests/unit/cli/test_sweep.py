"""`trainflow sweep`: what is printed of the survey function's answer, and what is said where there is none."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from typer.testing import CliRunner

from tests.wording import wording
from trainflow.cli.main import app
from trainflow.cli.operate import sweep as command
from trainflow.client.functions import FunctionFailed
from trainflow.client.place import PlaceRefused, PlaceUnavailable
from trainflow.client.refusals import told
from trainflow.client.sweeping import sweep
from trainflow.deployment.address import DeploymentAddress
from trainflow.workflow.leftovers import HeldObject, LeftoverState, RunLeftovers, SweepReport
from trainflow.workflow.run_status import RunStatus

ADDRESS = DeploymentAddress(
    deployment="blue",
    state_machine_arn="arn:aws:states:us-west-2:123456789012:stateMachine:blue-training",
    artifact_bucket="artifacts",
    data_bucket="data",
    cluster="blue",
    namespace="training",
    survey_function="blue-SurveyFleet:live",
)

STOPPED = RunLeftovers(
    run_id="bert-0123456789ab",
    state=LeftoverState.LEFT,
    status=RunStatus.ABORTED,
    ended_at=datetime(2026, 11, 21, 12, 0, tzinfo=UTC),
    objects=tuple(HeldObject(kind="Job", name=f"bert-0123456789ab-training-{number}") for number in range(5)),
    instance_type="trn1.32xlarge",
    num_nodes=2,
    usd_per_hour=43.0,
)
UNKNOWN = RunLeftovers(
    run_id="other", state=LeftoverState.UNKNOWN, objects=(HeldObject(kind="claim", name="other-nodes"),)
)


def printed(monkeypatch: pytest.MonkeyPatch, report: SweepReport, *options: str) -> tuple[int, str]:
    class Reader:
        def sweep(self, *, delete: bool) -> SweepReport:
            assert delete is report.deleted
            return report

    monkeypatch.setattr(command, "open_reader", lambda **_: Reader())
    result = CliRunner().invoke(app, ["sweep", *options])
    return result.exit_code, result.output


def test_a_dry_run_says_what_would_be_deleted_and_what_it_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    report = SweepReport(deleted=False, runs=(STOPPED, UNKNOWN))
    status, output = printed(monkeypatch, report, "--dry-run")
    assert status == 0
    first, second = output.splitlines()[1:3]
    assert first.split()[:8] == ["bert-0123456789ab", "2026-11-21", "12:00", "UTC", "43.00", "2", "x", "trn1.32xlarge"]
    assert "would be deleted" in first
    assert first.endswith("and 2 more")
    assert "never deleted" in second
    assert output.splitlines()[-1] == wording("sweep.a_dry_run_says_what_would_be_deleted_and_what_it_costs", "43.00")


def test_a_dry_run_with_nothing_to_delete_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    _, output = printed(monkeypatch, SweepReport(deleted=False, runs=(UNKNOWN,)), "--dry-run")
    assert output.splitlines()[-1] == "Nothing would be deleted now."


def test_a_sweep_says_what_it_deleted(monkeypatch: pytest.MonkeyPatch) -> None:
    status, output = printed(monkeypatch, SweepReport(deleted=True, runs=(STOPPED,)))
    assert (status, output.splitlines()[-1]) == (
        0,
        wording("sweep.a_sweep_says_what_it_deleted", "43.00"),
    )


def test_a_sweep_says_which_nodes_it_released(monkeypatch: pytest.MonkeyPatch) -> None:
    report = SweepReport(deleted=True, runs=(STOPPED,), nodes_released={"trn1n.32xlarge": 1, "trn1.32xlarge": 2})
    _, output = printed(monkeypatch, report)
    assert output.splitlines()[-1].endswith(" an hour. Released: 2 x trn1.32xlarge, 1 x trn1n.32xlarge.")


def test_a_price_that_is_not_known_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    report = SweepReport(deleted=True, runs=(STOPPED.model_copy(update={"usd_per_hour": None}),))
    _, output = printed(monkeypatch, report)
    assert "and more, whose price is not known" in output


def test_what_could_not_be_deleted_is_told_with_a_status_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    report = SweepReport(deleted=True, runs=(), trouble=("Slurm did not answer.",))
    status, output = printed(monkeypatch, report, "--json")
    assert status == 1
    assert "Slurm did not answer." in output


def test_the_answer_is_one_json_document(monkeypatch: pytest.MonkeyPatch) -> None:
    report = SweepReport(deleted=True, runs=(STOPPED,))
    _, output = printed(monkeypatch, report, "--json")
    assert SweepReport.model_validate(json.loads(output)) == report
    assert json.loads(output)["version"] == 1


def asked(answer: dict[str, Any] | None, *, code: str = "") -> SweepReport:
    client = boto3.client("lambda", region_name="us-west-2")
    with Stubber(client) as stub:
        if answer is None:
            stub.add_client_error("invoke", code, "said AWS")
        else:
            payload = io.BytesIO(json.dumps(answer.pop("document")).encode())
            expected = {"FunctionName": "blue-SurveyFleet:live", "Payload": '{"sweep": "list"}'}
            stub.add_response("invoke", {"StatusCode": 200, "Payload": payload, **answer}, expected)
        return told(sweep)(client, ADDRESS, delete=False)


def test_the_function_of_the_deployment_is_asked() -> None:
    report = SweepReport(deleted=False, runs=(STOPPED,))
    assert asked({"document": report.model_dump(mode="json")}) == report


def test_who_may_not_invoke_the_function_is_told_the_permission() -> None:
    with pytest.raises(PlaceRefused, match=r"lambda:InvokeFunction: .*said AWS"):
        asked(None, code="AccessDeniedException")


def test_a_deployment_without_the_function_has_to_be_deployed() -> None:
    with pytest.raises(PlaceUnavailable, match="deploy this version"):
        asked(None, code="ResourceNotFoundException")
    with pytest.raises(PlaceUnavailable, match="deploy this version"):
        sweep(None, ADDRESS.model_copy(update={"survey_function": ""}), delete=True)


def test_a_function_that_fails_is_one_sentence() -> None:
    failed = {"document": {"errorType": "ClusterUnavailable", "errorMessage": "It did not answer."}}
    with pytest.raises(FunctionFailed) as error:
        asked({**failed, "FunctionError": "Unhandled"})
    assert "ClusterUnavailable: It did not answer. Its log says more." in str(error.value)


def test_other_errors_of_aws_are_sentences_too() -> None:
    with pytest.raises(PlaceRefused) as error:
        asked(None, code="TooManyRequestsException")
    assert not isinstance(error.value, ClientError)
