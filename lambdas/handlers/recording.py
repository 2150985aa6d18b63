"""Records of a run: `steps.json` while it trains, `run.json` and `report.html` when it ends.

All three are stored with the run's artifacts in S3. The record is made from the execution's history and the stored
steps, so writing it again gives the same record, or a more complete one once the execution has ended.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from botocore.exceptions import ClientError

from lambdas.backends.backend import Backend
from lambdas.gateways import executions, metrics, objects
from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import read
from lambdas.handlers.task import logger
from trainflow.deployment.environment import ArtifactEnvironment, ClusterEnvironment, RunTableEnvironment
from trainflow.errors import ServiceUnavailable
from trainflow.record.build import build_record
from trainflow.record.history import child_arns
from trainflow.record.steps import FILE_NAME, KeptSteps, kept_steps_from_json
from trainflow.report import render_report
from trainflow.workflow.run import run_id_for
from trainflow.workflow.run_record import NodesBusy, RunError, RunRecord, RunStatus

MAX_WINDOWS = 200
"""Newest watch windows whose length is requested, with one call each: a month has fewer than a hundred."""

MAX_STEPS_BYTES = 1_000_000
"""Largest steps.json that is read; a thousand steps take a tenth of it."""


MAX_RECORD_BYTES = 4_000_000
"""Largest run.json that is read: the record of a year has fewer than ten thousand states."""

MAX_CONFLICTS = 5
"""Times that a call begins again since another one has stored steps. Two calls do so at a time, at most: a poll that a
stop has overtaken, and the clean-up."""


@dataclass(frozen=True, kw_only=True)
class StoredSteps:
    """The stored steps of a training, as they were read or written."""

    kept: KeptSteps
    etag: str | None
    """ETag of the object; None before it exists."""


def stored_steps(run_id: str) -> StoredSteps:
    """The stored steps of the training so far."""
    environment = read(ArtifactEnvironment)
    key = environment.key_of(run_id, FILE_NAME)
    found = objects.read_tagged(environment.artifact_bucket, key, limit_bytes=MAX_STEPS_BYTES)
    return (
        StoredSteps(kept=kept_steps_from_json(found[0]), etag=found[1])
        if found
        else StoredSteps(kept=KeptSteps(), etag=None)
    )


def kept_steps(run_id: str) -> KeptSteps:
    """The stored steps of the training so far, for reading."""
    return stored_steps(run_id).kept


def keep(run_id: str, stored: StoredSteps, change: Callable[[KeptSteps], KeptSteps]) -> StoredSteps:
    """Change the stored steps. What another call has stored in the meantime is read, and changed in place of `stored`.

    Args:
        run_id: The run.
        stored: What the caller has read or stored last.
        change: What the steps become.

    Raises:
        ServiceUnavailable: If others store steps again and again.
    """
    environment = read(ArtifactEnvironment)
    key = environment.key_of(run_id, FILE_NAME)
    for _ in range(MAX_CONFLICTS):
        kept = change(stored.kept)
        etag = objects.write_if_same(environment.artifact_bucket, key, kept.to_json(), etag=stored.etag)
        if etag is not None:
            return StoredSteps(kept=kept, etag=etag)
        stored = stored_steps(run_id)
    raise ServiceUnavailable(f"{FILE_NAME} of {run_id} was written by another call {MAX_CONFLICTS} times.")


def keep_placement(connect: Callable[[], Backend], run_id: str) -> None:
    """Store where the training was, before its pods are deleted. Never raises.

    A run does not need it, and no error may keep its nodes.
    """
    try:
        if (placement := connect().placement(run_id)) is not None:
            keep(run_id, stored_steps(run_id), lambda kept: replace(kept, placement=placement))
    except Exception:  # noqa: BLE001
        logger.exception("the nodes of the training could not be kept")


def write_record(
    run_id: str, execution_arn: str, *, status: RunStatus, error: RunError | None, ended_at: datetime | None = None
) -> RunRecord:
    """Write the run's record and report to S3.

    Args:
        run_id: The run.
        execution_arn: ARN of its execution.
        status: Final status of the run, which the history may show a moment later.
        error: Error of a failed run, if it is known; otherwise it is read from the history.
        ended_at: End of the run for a history that does not contain it; now by default.
    """
    environment = read(ArtifactEnvironment)
    history, kept = executions.history(execution_arn), kept_steps(run_id)
    record = build_record(
        run_id=run_id,
        history=history,
        children=[executions.last_event(arn) for arn in child_arns(history)[-MAX_WINDOWS:]],
        kept=kept,
        now=ended_at or datetime.now(UTC),
        status=status,
        error=error,
    )
    record = record.model_copy(update={"nodes_busy": _nodes_busy(kept)})
    report = render_report(record, kept.steps, folder=environment.url_of(run_id))
    for name, text, content_type in (
        ("report.html", report, "text/html; charset=utf-8"),
        ("run.json", record.model_dump_json(indent=2) + "\n", "application/json"),
    ):
        objects.write(environment.artifact_bucket, environment.key_of(run_id, name), text, content_type=content_type)
    return record


def stored_record(run_id: str) -> RunRecord | None:
    """The record as it was written last; None if it cannot be read. Never raises: a message needs no record."""
    environment = read(ArtifactEnvironment)
    key = environment.key_of(run_id, "run.json")
    try:
        text = objects.read(environment.artifact_bucket, key, version_id=None, limit_bytes=MAX_RECORD_BYTES)
        return RunRecord.model_validate_json(text) if text else None
    except Exception:  # noqa: BLE001 (the message is sent without it)
        logger.exception("the record could not be read")
        return None


def _nodes_busy(kept: KeptSteps) -> NodesBusy | None:
    """Utilization of the training's nodes; None, and a record without it, if CloudWatch does not answer."""
    if kept.placement is None:
        return None
    try:
        return metrics.nodes_busy(read(ClusterEnvironment).cluster_name, kept.placement)
    except (ServiceUnavailable, ClientError) as error:
        logger.warning("how busy the nodes were could not be read", extra={"reason": str(error)})
        return None


def own_run_id(execution_name: str, execution_arn: str) -> str | None:
    """The execution's run id; None if its name is not valid for one, or if another execution has this run id."""
    try:
        run_id = run_id_for(execution_name)
    except ValueError:
        return None
    row = RunTable(read(RunTableEnvironment).run_table).find(run_id)
    return run_id if row is None or row.execution_arn == execution_arn else None
