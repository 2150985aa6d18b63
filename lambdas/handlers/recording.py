"""Writing down what happened in a run: `steps.json` while it trains, `run.json` and `report.html` when it ends.

All three lie beside the run's artifacts in S3. The record is made of the execution's history and of the kept steps, so
writing it again gives the same record, or the one that knows more because the execution has gone on to its end.
"""

from __future__ import annotations

from datetime import UTC, datetime

from lambdas.gateways import executions, objects
from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import ArtifactEnvironment, RunTableEnvironment, read
from trainflow.models.run import run_id_for
from trainflow.models.run_record import RunError, RunRecord, RunStatus
from trainflow.record import build_record
from trainflow.record.history import child_arns
from trainflow.record.steps import FILE_NAME, KeptSteps, kept_steps_from_json
from trainflow.report import render_report

MAX_WINDOWS = 200
"""Newest watch windows whose length is asked for, a call each: a month has fewer than a hundred."""

MAX_STEPS_BYTES = 1_000_000
"""Of steps.json; a thousand steps take a tenth of it."""


def kept_steps(run_id: str) -> KeptSteps:
    """The steps of the training so far."""
    environment = read(ArtifactEnvironment)
    key = environment.key_of(run_id, FILE_NAME)
    text = objects.read(environment.artifact_bucket, key, version_id=None, limit_bytes=MAX_STEPS_BYTES)
    return kept_steps_from_json(text) if text else KeptSteps()


def keep(run_id: str, kept: KeptSteps) -> None:
    """Put the steps in the place of those that were there."""
    environment = read(ArtifactEnvironment)
    objects.write(environment.artifact_bucket, environment.key_of(run_id, FILE_NAME), kept.to_json())


def write_record(
    run_id: str, execution_arn: str, *, status: RunStatus, error: RunError | None, ended_at: datetime | None = None
) -> RunRecord:
    """Put the run's record and report into S3.

    Args:
        run_id: The run.
        execution_arn: Its execution.
        status: How it ends, or has ended: the history may show that a moment later.
        error: With which error, if that is known; else the history tells.
        ended_at: When, if the history does not tell; now by default.
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
    report = render_report(record, kept.steps, folder=environment.url_of(run_id))
    for name, text, content_type in (
        ("report.html", report, "text/html; charset=utf-8"),
        ("run.json", record.model_dump_json(indent=2) + "\n", "application/json"),
    ):
        objects.write(environment.artifact_bucket, environment.key_of(run_id, name), text, content_type=content_type)
    return record


def own_run_id(execution_name: str, execution_arn: str) -> str | None:
    """The execution's run id; None if its name makes none, or if it belongs to another execution's run."""
    try:
        run_id = run_id_for(execution_name)
    except ValueError:
        return None
    row = RunTable(read(RunTableEnvironment).run_table).find(run_id)
    return run_id if row is None or row.execution_arn == execution_arn else None
