"""A run from its start to its end, with everything that people see of it."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from local.aws.deployment import ARTIFACT_BUCKET
from local.twin import Twin
from tests.integration.mails import Mails
from tests.integration.running import follow_run
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
    mails = Mails(twin)
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
        mails.end_of(record),
        page.warnings,
        (folder / run_id / "report.html").read_text(),
        content(twin, f"runs/{run_id}/report.html").decode(),
    )


@contextmanager
def runs_together(twin: Twin, specs: Mapping[str, RunSpec], *, folder: Path) -> Iterator[Mapping[str, Future[Ended]]]:
    """Runs that go on side by side, each followed to its end in a thread of its own.

    Programs that take their time in seconds and not in work cost a module the time of the longest of them.

    Args:
        twin: Where they run.
        specs: Their specs by run id.
        folder: Folder of the runs' folders.

    Yields:
        The end of each run, which a test waits for.
    """
    with ThreadPoolExecutor(len(specs)) as followers:
        yield {
            run_id: followers.submit(run_to_its_end, twin, spec, run_id, folder=folder)
            for run_id, spec in specs.items()
        }


def content(twin: Twin, key: str) -> bytes:
    """An object of the artifact bucket."""
    found: bytes = twin.client("s3").get_object(Bucket=ARTIFACT_BUCKET, Key=key)["Body"].read()
    return found
