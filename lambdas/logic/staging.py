"""Staging seen from outside: where a data set lies that is linked, how far it is, and whether it gets any further."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

from trainflow.errors import StagingStalled
from trainflow.models.data_import import Import
from trainflow.models.run import JobRef, StagingProgress
from trainflow.models.run_spec import Dataset, Limits
from trainflow.protocol.pods import DATA_MOUNT
from trainflow.protocol.staging_line import StagingReport, parse_staging_line


def linked_folder(dataset: Dataset, linked_url: str) -> str | None:
    """Where a data set appears in the pods without being copied; None if it does not.

    Args:
        dataset: The spec's.
        linked_url: `s3://bucket/prefix/` that the file system shows below `/data`; empty if it shows none.
    """
    below = dataset.url.removeprefix(linked_url)
    if not linked_url or not dataset.is_prefix or not below or below == dataset.url:
        return None
    return f"{DATA_MOUNT}/{below.rstrip('/')}"


def newest_report(lines: Iterable[str]) -> StagingReport | None:
    """The last of the program's lines that says how far it is."""
    found = [report for line in lines if (report := parse_staging_line(line)) is not None]
    return found[-1] if found else None


def advanced(progress: StagingProgress, report: StagingReport | None, *, now: datetime) -> StagingProgress:
    """The progress after a look at the log; its clock starts anew whenever something has arrived."""
    if report is None:
        return progress
    at = (report.done_bytes, report.files)
    return StagingProgress(
        done_bytes=report.done_bytes,
        files=report.files,
        moved_at=now if progress.moved_at is None or at != (progress.done_bytes, progress.files) else progress.moved_at,
    )


def import_advanced(progress: StagingProgress | None, seen: Import, *, now: datetime) -> StagingProgress:
    """The progress after a look at FSx's import; its clock runs from the first look on, begun or not."""
    if progress is not None and progress.files == seen.names:
        return progress
    return StagingProgress(files=seen.names, moved_at=now, importing=True)


def require_import_progress(seen: Import, progress: StagingProgress, *, limits: Limits, now: datetime) -> None:
    """Names have to arrive now and then.

    Raises:
        StagingStalled: If none has for `limits.stall_minutes`.
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
    """Bytes or files have to arrive now and then.

    A program that has not reported yet may be waiting for another run that stages the same data set: that one is
    watched, and the job's own deadline ends this one.

    Raises:
        StagingStalled: If nothing has arrived for `limits.stall_minutes`.
    """
    if progress.moved_at is not None and now - progress.moved_at > timedelta(minutes=limits.stall_minutes):
        raise StagingStalled(
            f"The job '{job.name}' has staged nothing for {limits.stall_minutes:g} minutes after "
            f"{progress.done_bytes:,} bytes and {progress.files:,} files."
        )
