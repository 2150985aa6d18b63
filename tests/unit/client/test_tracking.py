"""What a tracker is told of a run, and what happens without the tracker's package."""

from __future__ import annotations

import importlib
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainflow.cli.main import app
from trainflow.client.tracking import TrackerMissing, exported_run
from trainflow.client.tracking.exported_run import ExportedRun, Point
from trainflow.client.tracking.trackers import package
from trainflow.observed.step import Step
from trainflow.workflow.run_record import Cost, Inputs, Restart, RunError, RunRecord, RunStatus, Training

BEGIN = datetime(2026, 11, 21, 9, tzinfo=UTC)
SPEC = {
    "name": "bert",
    "workload": {"arguments": {"lr": 0.1, "amp": True, "layers": [1, 2]}, "image": "bert:1", "env": {}},
    "dataset": None,
}


def test_a_run_is_told_in_the_terms_of_trackers() -> None:
    record = RunRecord(
        run_id="bert-1",
        status=RunStatus.FAILED,
        spec=SPEC,
        instance_type="trn1.32xlarge",
        started_at=BEGIN,
        ended_at=BEGIN,
        error=RunError(name="WorkerFailed", message="It ended.", what_to_do=""),
        restarts=[Restart(stage="training", attempt=1, at=BEGIN, error="NodeLost", message="gone")],
        inputs=Inputs(git_commit="c" * 40, packages={"torch": "2.9.0"}, dataset_sha256="ab"),
        cost=Cost(usd=1.5, node_hours=2, region="us-west-2"),
        training=Training(steps=2),
    )
    steps = [
        Step(BEGIN, 0, 1, math.nan, None, 12.0, metrics={"acc@1": 0.5}),
        Step(BEGIN, None, 2, None, None, None),
    ]
    files = {"run.json": Path("run.json")}
    found = exported_run(record, steps, files)
    assert repr(found) == repr(  # NaN is no equal of itself
        ExportedRun(
            run_id="bert-1",
            name="bert",
            status=RunStatus.FAILED,
            started_at=BEGIN,
            ended_at=BEGIN,
            spec=SPEC,
            parameters={
                "name": "bert",
                "workload.arguments.lr": "0.1",
                "workload.arguments.amp": "true",
                "workload.arguments.layers": "[1, 2]",
                "workload.image": "bert:1",
                "workload.env": "{}",
            },
            tags={
                "trainflow.run_id": "bert-1",
                "trainflow.instance_type": "trn1.32xlarge",
                "trainflow.restarts": "1",
                "trainflow.error": "WorkerFailed: It ended.",
                "trainflow.estimated_usd": "1.5000",
                "trainflow.git_commit": "c" * 40,
                "trainflow.dataset_version": "ab",
                "trainflow.package.torch": "2.9.0",
            },
            points=[
                Point(
                    step=1, logged_at=BEGIN, figures={"loss": math.nan, "throughput": 12.0, "epoch": 0.0, "acc_1": 0.5}
                )
            ],
            files=files,
        )
    )


def test_a_package_that_is_not_installed_is_named_with_what_brings_it() -> None:
    with pytest.raises(TrackerMissing, match=r"'no_tracker'.*pip install .*\[some\]"):
        package("no_tracker", extra="some")


def test_a_package_that_lacks_another_one_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_tracker.py").write_text("import absent_dependency\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    importlib.invalidate_caches()
    with pytest.raises(ModuleNotFoundError, match="absent_dependency"):
        package("broken_tracker", extra="some")


def test_an_export_without_a_tracker_says_which_there_are() -> None:
    answer = CliRunner().invoke(app, ["export", "bert-1", "--local"])
    assert answer.exit_code == 2
    assert "--mlflow URI, --wandb PROJECT" in " ".join(answer.output.split())
