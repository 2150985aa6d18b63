"""Copies of what a run has published: any pod of the run may choose the keys, and none leads out of the folder."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws
from typer.testing import CliRunner

from local.aws import folder_buckets
from tests.fakes.runs import SPEC
from trainflow.cli.main import app
from trainflow.client.artifacts import Artifact, ArtifactRefused, is_plain, path_below
from trainflow.client.kept_logs import copy_logs
from trainflow.client.local_runs import LocalOptions, LocalRuns
from trainflow.client.runs import DeployedRuns
from trainflow.client.tracking import to_mlflow
from trainflow.client.tracking.exported_run import ExportedRun
from trainflow.deployment.address import DeploymentAddress
from trainflow.kubernetes.api import KubernetesApi
from trainflow.record.steps import KeptSteps

BUCKET, RUN_ID = "artifacts", "bert-1"

HOSTILE = ("../../up", "/rooted", "a/../../out", "a/./b", "a//b", "marker/", "..", "bell\a")
"""Names below the run's folder, which S3 takes as it takes any other."""


def artifact(name: str) -> Artifact:
    return Artifact(name=name, key=f"runs/{RUN_ID}/{name}", size=1, modified_at=datetime(2026, 11, 22, tzinfo=UTC))


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket=BUCKET)
        yield s3


@pytest.fixture
def runs(s3: Any, monkeypatch: pytest.MonkeyPatch) -> DeployedRuns:
    """A deployment with one run, which the commands find."""
    session = boto3.Session(region_name="us-east-1")
    states = session.client("stepfunctions")
    role = "arn:aws:iam::123456789012:role/states"
    arn = states.create_state_machine(name="training", definition="{}", roleArn=role)["stateMachineArn"]
    states.start_execution(stateMachineArn=arn, name=RUN_ID, input=json.dumps(SPEC))

    def no_cluster() -> KubernetesApi:
        raise AssertionError("no pod is asked for")

    address = DeploymentAddress(
        deployment="mine",
        state_machine_arn=arn,
        artifact_bucket=BUCKET,
        data_bucket="data",
        cluster="mine",
        namespace="training",
    )
    client: Any = session.client
    runs = DeployedRuns(address, client=client, kubernetes=no_cluster)
    for module in ("commands", "export"):  # the package has the function `export` under this name, too
        monkeypatch.setattr(sys.modules[f"trainflow.cli.operate.{module}"], "open_reader", lambda **_: runs)
    return runs


def publish(s3: Any, *names: str) -> None:
    for name in names:
        s3.put_object(Bucket=BUCKET, Key=f"runs/{RUN_ID}/{name}", Body=name.encode())


def files_in(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_a_name_is_plain_if_it_stays_below_its_folder() -> None:
    assert [name for name in ("a", "a/b.pt", "..a/b..", "...", ".a", "ä b", *HOSTILE, "") if is_plain(name)] == [
        "a",
        "a/b.pt",
        "..a/b..",
        "...",
        ".a",
        "ä b",
    ]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_leads_out_of_the_folder_is_one_sentence_with_the_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ArtifactRefused) as refused:
        path_below(tmp_path, artifact(name))
    assert str(refused.value) == (
        f"The artifact {name!r} is not copied: its name is not the path of a file below {tmp_path}."
    )


def test_a_link_below_the_folder_is_not_followed_and_the_folder_itself_may_be_one(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "there").symlink_to(tmp_path / "real")
    (tmp_path / "real" / "model").symlink_to(tmp_path)
    (tmp_path / "real" / "dangling").symlink_to(tmp_path / "nowhere")
    assert path_below(tmp_path / "there", artifact("weights")) == tmp_path / "there" / "weights"
    for name in ("model/weights", "dangling"):
        link = name.partition("/")[0]
        with pytest.raises(ArtifactRefused, match=rf"'{name}' .*/{link} .*symbolic link"):
            path_below(tmp_path / "there", artifact(name))


@pytest.mark.usefixtures("runs")
def test_a_pull_copies_the_rest_and_writes_nothing_outside_of_its_folder(s3: Any, tmp_path: Path) -> None:
    publish(s3, "model/weights", "linked/weights", "z", *HOSTILE)
    folder = tmp_path / "here" / "pulled"
    folder.mkdir(parents=True)
    (folder / "linked").symlink_to(tmp_path)

    result = CliRunner().invoke(app, ["artifacts", RUN_ID, "--pull", str(folder)])

    assert files_in(tmp_path) == {"here/pulled/model/weights", "here/pulled/z"}
    assert result.exit_code == 1
    assert result.stdout.splitlines() == [f"{folder}/model/weights", f"{folder}/z"]
    named = [line.partition(" is not copied")[0] for line in result.stderr.splitlines()]
    assert sorted(named) == sorted(f"The artifact {name!r}" for name in (*HOSTILE, "linked/weights"))


@pytest.mark.usefixtures("runs")
def test_a_name_that_no_file_system_takes_is_one_sentence_and_the_rest_is_copied(s3: Any, tmp_path: Path) -> None:
    long = "x" * 300
    publish(s3, "a", "a/b", "c/d", "c", long, "z")

    result = CliRunner().invoke(app, ["artifacts", RUN_ID, "--pull", str(tmp_path)])

    assert (result.exit_code, files_in(tmp_path)) == (1, {"a", "c", "z"})
    assert [line.partition(" cannot be made")[0] for line in result.stderr.splitlines()] == [
        f"The artifact {name!r} is not copied: {tmp_path / name}" for name in ("a/b", "c/d", long)
    ]


@pytest.mark.usefixtures("runs")
def test_tensorboard_is_given_no_file_outside_of_its_folder(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(s3, "../../../tfevents.up", f"/{tmp_path}/tfevents.rooted")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("shutil.which", lambda *_, **__: "/bin/true")  # TensorBoard does not end by itself
    result = CliRunner().invoke(app, ["tensorboard", RUN_ID])
    assert result.exit_code == 2
    first, second, last = result.stderr.splitlines()
    assert "tfevents.up' is not copied" in first
    assert "tfevents.rooted' is not copied" in second
    assert "There is nothing to show" in last
    assert files_in(tmp_path.parent) & {"tfevents.up", f"{tmp_path.name}/tfevents.rooted"} == set()


@pytest.mark.usefixtures("runs")
def test_a_tracker_is_given_no_file_from_outside_of_the_export(
    s3: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    publish(s3, "model/weights", "../../up", f"/{tmp_path}/rooted")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    given: dict[str, str] = {}

    def export(run: ExportedRun, **_: object) -> str:
        given.update({name: path.read_text() for name, path in run.files.items()})
        return "1"

    monkeypatch.setattr(to_mlflow, "export", export)  # whose package has an environment of its own
    result = CliRunner().invoke(app, ["export", RUN_ID, "--mlflow", "http://127.0.0.1:1", "--artifacts"])
    assert result.exit_code == 1, result.output
    assert set(given) == {"run.json", "report.html", "model/weights"}
    assert given["model/weights"] == "model/weights"
    assert len(result.stderr.splitlines()) == 2
    assert files_in(tmp_path) == set()


def test_the_twin_leaves_no_object_outside_of_its_buckets_folder(s3: Any, tmp_path: Path) -> None:
    publish(s3, "model/weights", "../../../../up", f"/{tmp_path}/rooted")

    class Server:
        def client(self, service: str) -> Any:
            assert service == "s3"
            return s3

    folder_buckets.save(Server(), BUCKET, tmp_path / "s3")  # type: ignore[arg-type]
    assert files_in(tmp_path) == {f"s3/{BUCKET}/runs/{RUN_ID}/model/weights"}


def test_a_link_among_the_files_of_an_ended_run_is_no_artifact(tmp_path: Path) -> None:
    kept = tmp_path / "home" / "s3" / "artifacts" / "runs" / RUN_ID
    kept.mkdir(parents=True)
    (tmp_path / "out" / RUN_ID / "logs").mkdir(parents=True)
    (tmp_path / "secret").write_text("secret")
    (kept / "weights").write_text("1")
    (kept / "link").symlink_to(tmp_path / "secret")
    local = LocalRuns(LocalOptions(out=tmp_path / "out", home=tmp_path / "home"))
    assert [found.name for found in local.artifacts(RUN_ID)] == ["weights"]


def test_a_record_or_report_that_a_program_has_written_is_not_the_workflows(
    s3: Any, runs: DeployedRuns, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every program of the run may write objects there: of any size, and no JSON or UTF-8."""
    monkeypatch.setattr("trainflow.client.runs.MAX_STORED_BYTES", 100)
    for content in (b"x" * 101, b"[" * 99, b"\xff"):
        for name in ("run.json", "steps.json"):
            s3.put_object(Bucket=BUCKET, Key=f"runs/{RUN_ID}/{name}", Body=content)
        assert runs.kept_steps(RUN_ID) in (None, KeptSteps())
        assert runs.record(RUN_ID).run_id == RUN_ID
    boto3.client("stepfunctions", region_name="us-east-1").stop_execution(
        executionArn=runs._execution(RUN_ID)["executionArn"]
    )
    for content, shown in ((b"x" * 100, True), (b"x" * 101, False)):
        s3.put_object(Bucket=BUCKET, Key=f"runs/{RUN_ID}/report.html", Body=content)
        assert (runs.report(RUN_ID) == "x" * 100) is shown
    s3.put_object(Bucket=BUCKET, Key=f"runs/{RUN_ID}/report.html", Body=b"\xff")
    assert runs.report(RUN_ID) == "\ufffd"


def test_of_a_log_that_is_too_large_the_beginning_is_copied(
    s3: Any, runs: DeployedRuns, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainflow.client.kept_logs.MAX_BYTES", 11)
    publish(s3, "logs/a.log")
    s3.put_object(Bucket=BUCKET, Key=f"runs/{RUN_ID}/logs/pod.log", Body=b"one line\nand another one\n")
    copy_logs(s3, BUCKET, RUN_ID, tmp_path)
    assert (tmp_path / "pod.log").read_text() == "one line\nan\n"
