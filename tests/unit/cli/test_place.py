"""Places are found by their entry points; a run is started, listed, described and stopped through AWS's APIs alone."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from importlib.metadata import EntryPoint
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from moto import mock_aws
from rich.console import Console
from starlette.testclient import TestClient

from tests.fakes.runs import SPEC, spec_with
from trainflow.cli.deployed.start import follow_started
from trainflow.client import place as places
from trainflow.client.place import (
    LogRequest,
    PlaceOptions,
    PlaceRefused,
    PlaceUnavailable,
    RunNotFound,
    RunSummary,
    open_place,
)
from trainflow.client.runs import DeployedRuns
from trainflow.deployment.address import DeploymentAddress
from trainflow.kubernetes.api import KubernetesApi
from trainflow.page.app import PageApp
from trainflow.page.library import RunLibrary
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.owner import UNKNOWN, Owner, OwnerKind, owner_of_input, spec_of_input
from trainflow.workflow.run_record import RunError, RunRecord, RunStatus

REASON = RunError(name="Aborted", message="It was stopped.", what_to_do="Start it again.")


def offered(monkeypatch: pytest.MonkeyPatch, **entry_points: str) -> None:
    """Let the installed packages offer these places and no others."""
    found = [EntryPoint(name, value, places.GROUP) for name, value in entry_points.items()]
    monkeypatch.setattr(
        "importlib.metadata.entry_points",
        lambda *, group, name=None: [each for each in found if group == places.GROUP and name in (None, each.name)],
    )


def test_a_place_is_what_its_entry_point_makes_of_the_options(monkeypatch: pytest.MonkeyPatch) -> None:
    offered(monkeypatch, here="contextlib:nullcontext")
    options = PlaceOptions()
    with open_place("here", options) as place:
        assert place is options  # type: ignore[comparison-overlap]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("local", "The twin needs a checkout of the Trainflow repository, .*`make run`.*SPEC --local"),
        ("elsewhere", "There is no place 'elsewhere'; those that are installed: broken."),
        ("broken", "The place 'broken' cannot be loaded: No module named 'absent'. Install what its package needs"),
    ],
)
def test_a_place_that_is_not_installed_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, name: str, sentence: str
) -> None:
    offered(monkeypatch, broken="absent:opener")
    with pytest.raises(PlaceUnavailable, match=sentence):
        open_place(name, PlaceOptions())


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[DeployedRuns]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        session = boto3.Session(region_name="us-west-2")
        machine = session.client("stepfunctions").create_state_machine(
            name="training", definition=json.dumps({}), roleArn="arn:aws:iam::123456789012:role/states"
        )

        session.client("s3").create_bucket(
            Bucket="artifacts", CreateBucketConfiguration={"LocationConstraint": "us-west-2"}
        )

        def no_cluster() -> KubernetesApi:
            raise AssertionError("no pod is asked for")

        address = DeploymentAddress(
            deployment="twin",
            state_machine_arn=machine["stateMachineArn"],
            artifact_bucket="artifacts",
            data_bucket="data",
            cluster="trainflow",
            namespace="training",
        )
        yield DeployedRuns(
            address,
            client=lambda service: session.client(service),  # type: ignore[call-overload]
            kubernetes=no_cluster,
        )


def test_a_run_is_started_once_listed_and_stopped(runs: DeployedRuns) -> None:
    spec = parse_run_spec(SPEC)
    first, second = runs.start(spec), runs.start(spec)
    assert first != second
    assert {run.run_id for run in runs.runs()} == {first, second}
    assert (runs.describe(first).status, runs.describe(first).ended_at) == (RunStatus.RUNNING, None)
    runs.stop(first, reason=REASON)
    stopped, other = runs.describe(first), runs.describe(second)
    assert (stopped.status, other.status) == (RunStatus.ABORTED, RunStatus.RUNNING)
    assert stopped.ended_at is not None


def test_a_run_that_began_when_the_python_environment_had_another_name_is_followed(
    runs: DeployedRuns, tmp_path: Path
) -> None:
    spec = spec_with(compute__backend="slurm", workload__image=None, workload__environment="/fsx/venv")
    stepfunctions = boto3.client("stepfunctions", region_name="us-west-2")
    machine = stepfunctions.list_state_machines()["stateMachines"][0]["stateMachineArn"]
    stepfunctions.start_execution(stateMachineArn=machine, name="before", input=json.dumps(spec))
    assert not runs.follow("before", log_dir=tmp_path).is_finished()


def input_of(runs: DeployedRuns, run_id: str) -> Any:
    """The input of a run's execution; moto's histories are the same for every execution."""
    return json.loads(runs._execution(run_id)["input"])


def test_a_run_that_is_started_names_the_identity_of_the_caller(runs: DeployedRuns) -> None:
    spec = parse_run_spec(spec_with(team="research"))
    given = input_of(runs, runs.start(spec))
    caller = boto3.client("sts", region_name="us-west-2").get_caller_identity()["Arn"]
    assert owner_of_input(given) == Owner(kind=OwnerKind.CALLER, name=caller)
    assert parse_run_spec(spec_of_input(given)) == spec


def refuse() -> None:
    raise EndpointConnectionError(endpoint_url="https://sts.us-west-2.amazonaws.com")


@pytest.mark.parametrize("unanswered", [refuse, lambda: threading.Event().wait()])
def test_a_run_starts_without_an_owner_where_sts_does_not_answer(
    runs: DeployedRuns, monkeypatch: pytest.MonkeyPatch, unanswered: Callable[[], Any]
) -> None:
    monkeypatch.setattr("trainflow.client.runs.CALLER_SECONDS", 0.1)
    client, sts = runs._client, SimpleNamespace(get_caller_identity=unanswered)
    monkeypatch.setattr(runs, "_client", lambda service: sts if service == "sts" else client(service))
    assert owner_of_input(input_of(runs, runs.start(parse_run_spec(SPEC)))) == UNKNOWN


def test_the_records_are_those_of_the_bucket_and_of_the_runs_that_go_on(
    runs: DeployedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    def record(run_id: str, status: str) -> RunRecord:
        return RunRecord(run_id=run_id, status=RunStatus(status), spec=SPEC, started_at=datetime.now(UTC))

    monkeypatch.setattr(runs, "_record_now", lambda execution, _: record(execution["name"], execution["status"]))
    ended, running = runs.start(parse_run_spec(SPEC)), runs.start(parse_run_spec(SPEC))
    runs.stop(ended, reason=REASON)
    s3 = boto3.client("s3", region_name="us-west-2")
    for run_id, text in {
        "forgotten": record("forgotten", "SUCCEEDED").model_dump_json(),
        "later": '{"version": "a later one"}',
        running: record(running, "SUCCEEDED").model_dump_json(),  # by a program of the run
    }.items():
        s3.put_object(Bucket="artifacts", Key=f"runs/{run_id}/run.json", Body=text.encode())
    assert {run_id: found and found.status.value for run_id, found in runs.records()} == {
        ended: "ABORTED",
        running: "RUNNING",
        "forgotten": "SUCCEEDED",
        "later": None,
    }


def without_cluster(runs: DeployedRuns, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the caller have no access to the deployment's cluster from now on."""

    def refused() -> KubernetesApi:
        raise PlaceRefused("You may not use `eks:DescribeCluster`.")

    monkeypatch.setattr(runs, "_kubernetes", refused)


def test_a_run_is_followed_without_access_to_the_cluster(
    runs: DeployedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cluster(runs, monkeypatch)
    run_id = runs.start(parse_run_spec(SPEC))
    with runs.follow(run_id, log_dir=tmp_path) as followed:
        assert not followed.is_finished()
        while (trouble := followed.snapshot().trouble) is None:
            time.sleep(0.01)
    assert trouble == "You may not use `eks:DescribeCluster`."
    details = runs.details(run_id)
    assert (details.run_id, details.pods) == (run_id, ())
    with pytest.raises(PlaceRefused, match="eks:DescribeCluster"):
        list(runs.log(run_id, LogRequest()))


def test_a_view_that_asks_often_asks_aws_once_a_poll(
    runs: DeployedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cluster(runs, monkeypatch)
    run_id = runs.start(parse_run_spec(SPEC))
    followed = runs.follow(run_id, log_dir=tmp_path)
    asked: list[str] = []
    answer = runs.describe
    monkeypatch.setattr(runs, "describe", lambda run_id: (asked.append(run_id), answer(run_id))[1])
    assert not any(followed.is_finished() for _ in range(20))
    assert asked == [run_id]


def test_a_poll_that_aws_refuses_ends_no_view(
    runs: DeployedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cluster(runs, monkeypatch)
    followed = runs.follow(runs.start(parse_run_spec(SPEC)), log_dir=tmp_path)

    def refused(_run_id: str) -> RunSummary:
        raise PlaceRefused("AWS does not answer.")

    monkeypatch.setattr(runs, "describe", refused)
    assert not followed.is_finished()


def test_a_run_that_is_not_there_is_named(runs: DeployedRuns) -> None:
    def ask(call: Any) -> None:
        with pytest.raises(RunNotFound, match=r"run 'absent'.*deployment 'twin'"):
            call()

    ask(lambda: runs.describe("absent"))
    ask(lambda: runs.stop("absent", reason=REASON))


def unread(runs: DeployedRuns, code: str = "AccessDeniedException") -> None:
    """Let Step Functions refuse the history of executions from now on."""

    def refused(**_: object) -> None:
        raise ClientError({"Error": {"Code": code, "Message": "User x is not authorized"}}, "GetExecutionHistory")

    runs._stepfunctions.meta.events.register("before-call.stepfunctions.GetExecutionHistory", refused)


UNREAD = "These credentials may not call states:GetExecutionHistory: User x is not authorized."
"""What is said then."""

NEED_THE_HISTORY: dict[str, Callable[[DeployedRuns, str, Path], object]] = {
    "details": lambda runs, run_id, _: runs.details(run_id),
    "record": lambda runs, run_id, _: runs.record(run_id),
    "final_record": lambda runs, run_id, _: runs.final_record(run_id),
    "report": lambda runs, run_id, _: runs.report(run_id),
    "resume": lambda runs, run_id, _: runs.resume(run_id),
    "follow": lambda runs, run_id, folder: runs.follow(run_id, log_dir=folder),
}


@pytest.mark.parametrize("call", NEED_THE_HISTORY)
def test_a_run_whose_history_may_not_be_read_is_refused_with_the_permission(
    runs: DeployedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    monkeypatch.setattr("trainflow.client.runs.STOP_SECONDS", 0.0)
    without_cluster(runs, monkeypatch)
    run_id = runs.start(parse_run_spec(SPEC))
    runs.stop(run_id, reason=REASON)
    unread(runs)
    with pytest.raises(PlaceRefused) as refused:
        NEED_THE_HISTORY[call](runs, run_id, tmp_path)
    assert str(refused.value) == UNREAD
    assert [run.run_id for run in runs.runs()] == [run_id], "nothing was started"


def test_a_history_that_does_not_come_is_no_run_that_goes_on(
    runs: DeployedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cluster(runs, monkeypatch)
    run_id = runs.start(parse_run_spec(SPEC))
    unread(runs, "ThrottlingException")
    with pytest.raises(PlaceRefused, match=r"Step Functions.*: .*ThrottlingException"):
        runs.details(run_id)


def test_a_view_says_which_permission_has_gone_meanwhile_and_makes_no_record_of_what_it_has_not_seen(
    runs: DeployedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cluster(runs, monkeypatch)
    run_id = runs.start(parse_run_spec(SPEC))
    followed = runs.follow(run_id, log_dir=tmp_path)
    unread(runs)
    with followed:
        while (trouble := followed.snapshot().trouble) is None:
            time.sleep(0.01)
    assert UNREAD in (trouble, followed.snapshot().trouble)
    with pytest.raises(PlaceRefused) as refused:
        followed.record()
    assert str(refused.value) == UNREAD
    assert followed.record(aborted=REASON).status is RunStatus.ABORTED


def test_the_page_of_a_run_whose_history_may_not_be_read_says_so(
    runs: DeployedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_cluster(runs, monkeypatch)
    run_id = runs.start(parse_run_spec(SPEC))
    unread(runs)
    with RunLibrary(folder=tmp_path, place=runs) as library:
        answer = TestClient(PageApp(library, form_token="form").asgi).get(f"/runs/{run_id}")
    assert (answer.status_code, answer.text) == (503, f"{UNREAD}\n")


def test_a_run_that_was_started_and_may_not_be_followed_is_named(
    runs: DeployedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    without_cluster(runs, monkeypatch)
    run_id = runs.start(parse_run_spec(SPEC))
    runs.stop(run_id, reason=REASON)  # nothing is followed for ever
    unread(runs)
    with pytest.raises(PlaceRefused, match="states:GetExecutionHistory"):
        follow_started(runs, run_id, out=tmp_path, detach=False, console=Console(quiet=True), page=False)
    assert capsys.readouterr().out == (
        f"The run is not followed; this tells how it goes: trainflow status {run_id} --place twin\n"
    )
