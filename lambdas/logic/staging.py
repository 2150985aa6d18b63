"""Staging as the workflow sees it: folder of a linked data set, progress, and the check for a stall."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from enum import Enum, auto

from trainflow.deployment.data_import import Import
from trainflow.errors import StagingStalled
from trainflow.protocol.pods import DATA_MOUNT
from trainflow.protocol.staging_line import WAITING, StagingReport, parse_staging_line
from trainflow.spec.run_spec import Dataset, Limits
from trainflow.workflow.run import JobRef, StagingProgress


def linked_folder(dataset: Dataset, linked_url: str) -> str | None:
    """Folder of a linked data set in the pods; None if the data set has to be copied.

    Args:
        dataset: Data set of the spec.
        linked_url: `s3://bucket/prefix/` that the file system links below `/data`; empty if it links none.
    """
    below = dataset.url.removeprefix(linked_url)
    if not linked_url or not dataset.is_prefix or not below or below == dataset.url:
        return None
    return f"{DATA_MOUNT}/{below.rstrip('/')}"


def newest_report(lines: Iterable[str]) -> StagingReport | None:
    """The newest progress report among the program's lines."""
    found = [report for line in lines if (report := parse_staging_line(line)) is not None]
    return found[-1] if found else None


def is_waiting(lines: Iterable[str]) -> bool:
    """Whether the program waits for another run that stages the same data set: it has reported nothing since."""
    newest = [line for line in lines if line.startswith(WAITING) or parse_staging_line(line) is not None]
    return bool(newest) and newest[-1].startswith(WAITING)


class Silence(Enum):
    """Reasons why a program has not reported its progress."""

    NOT_RUNNING = auto()
    WAITS = auto()
    """For another run that stages the same data set."""
    UNEXPLAINED = auto()
    """It runs, and whatever it does it does not say."""


def advanced(progress: StagingProgress, report: StagingReport | Silence, *, now: datetime) -> StagingProgress:
    """The progress after a poll of the log.

    The stall clock begins when the program runs, restarts whenever bytes or files have arrived, and stands still while
    it waits for another run.
    """
    if report is Silence.WAITS:
        return progress.model_copy(update={"moved_at": None})
    if report is Silence.UNEXPLAINED:
        return progress.model_copy(update={"moved_at": progress.moved_at or now})
    if isinstance(report, Silence):
        return progress
    at = (report.done_bytes, report.files)
    return StagingProgress(
        done_bytes=report.done_bytes,
        files=report.files,
        moved_at=now if progress.moved_at is None or at != (progress.done_bytes, progress.files) else progress.moved_at,
    )


def import_advanced(progress: StagingProgress | None, seen: Import, *, now: datetime) -> StagingProgress:
    """The progress after a poll of FSx's import. The stall clock starts with the first poll, not with the import."""
    if progress is not None and progress.files == seen.names:
        return progress
    return StagingProgress(files=seen.names, moved_at=now, importing=True)


def require_import_progress(seen: Import, progress: StagingProgress, *, limits: Limits, now: datetime) -> None:
    """Require that the import makes progress.

    Raises:
        StagingStalled: If no name has arrived for `limits.stall_minutes`.
    """
    if progress.moved_at is None or now - progress.moved_at <= timedelta(minutes=limits.stall_minutes):
        return
    if seen.task_id is None:
        raise StagingStalled(
            f"FSx has been busy with another data repository task for {limits.stall_minutes:g} minutes, and has not "
            "begun to import the data set's names."
        )
    raise StagingStalled(
        f"FSx's data repository task '{seen.task_id}' has imported no name for {limits.stall_minutes:g} minutes after "
        f"{seen.names:,}."
    )


def require_progress(job: JobRef, progress: StagingProgress, *, limits: Limits, now: datetime) -> None:
    """Require that staging makes progress.

    A program that waits for another run, which stages the same data set, is not checked: the other run is checked, and
    this job ends at its deadline.

    Raises:
        StagingStalled: If no bytes and no files have arrived for `limits.stall_minutes`.
    """
    if progress.moved_at is not None and now - progress.moved_at > timedelta(minutes=limits.stall_minutes):
        raise StagingStalled(
            f"The job '{job.name}' has staged nothing for {limits.stall_minutes:g} minutes after "
            f"{progress.done_bytes:,} bytes and {progress.files:,} files."
        )
