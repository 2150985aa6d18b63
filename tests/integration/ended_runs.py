"""A run from its start to its end, with everything that people see of it."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from local.aws.deployment import ARTIFACT_BUCKET
from local.twin import Twin
from tests.integration.running import follow_run
from tests.integration.test_runs import subscription
from trainflow.cli.follow.summary import summarize
from trainflow.page.ended import EndedRuns
from trainflow.spec.run_spec import RunSpec
from trainflow.workflow.run_record import RunRecord


@dataclass(frozen=True)
class Ended:
    """What people see of a run that is over."""

    record: RunRecord
    kept: RunRecord
    """The record that the workflow has written."""
    followed: str
    """What the command printed while it followed the run, and at its end."""
    mail: str
    page: tuple[str, ...]
    report: str
    kept_report: str


def run_to_its_end(twin: Twin, spec: RunSpec, run_id: str, *, folder: Path) -> Ended:
    """Follow a run to its end, and collect what people see of it.

    Args:
        twin: Where it runs.
        spec: Its spec.
        run_id: Its id.
        folder: Folder of the runs' folders.
    """
    queue, receive = subscription(twin)
    printed = io.StringIO()
    console = Console(file=printed, width=1000)
    record = follow_run(twin, spec, run_id, folder=folder / run_id, console=console)
    summarize(record, console)
    page = EndedRuns(folder).snapshot(run_id)
    assert page is not None
    return Ended(
        record,
        RunRecord.model_validate_json(content(twin, f"runs/{run_id}/run.json")),
        printed.getvalue(),
        json.loads(receive(queue))["Message"],
        page.warnings,
        (folder / run_id / "report.html").read_text(),
        content(twin, f"runs/{run_id}/report.html").decode(),
    )


def content(twin: Twin, key: str) -> bytes:
    """An object of the artifact bucket."""
    found: bytes = twin.client("s3").get_object(Bucket=ARTIFACT_BUCKET, Key=key)["Body"].read()
    return found
