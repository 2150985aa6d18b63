"""Task states `Notify`, `NotifyFailure` and `NotifyRejection`: send a message about the run's end and record it.

States `TellOwner`, `TellOwnerOfLog`, `WarnOwner` and `NotifyRestart` send one about a run that goes on: its job cannot
be polled, its log cannot be read, it has used most of one of its limits, or its job has failed and is submitted again.

Each message is sent once, also if the function is repeated after it has sent it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import read
from lambdas.handlers.notifications import note, notify_once
from lambdas.handlers.recording import stored_record
from lambdas.handlers.task import task
from lambdas.logic.messages import message, near_limit, restarted, subject, unread, unseen
from trainflow.deployment.environment import RunTableEnvironment
from trainflow.record.failure import caught_error
from trainflow.workflow.run import JobRef, LimitWarning, MetricsCursor
from trainflow.workflow.run_record import RunError, RunRecord, RunStatus


class Event(BaseModel):
    run_id: str
    execution_arn: str
    status: RunStatus
    instance_type: str | None = None
    """Type of the run's nodes; None for a refused run."""
    given_up: list[str] = []
    """Types without capacity."""
    avoided_nodes: list[str] = []
    """Nodes that the run's jobs did not use any more."""
    refuted_test_nodes: list[str] = []
    """Nodes that the test before the training named in attempts in a row, so that the run goes on without it."""
    error: dict[str, Any] | None = None
    progress: MetricsCursor | None = None
    artifacts: dict[str, Any] | None = None
    folder: str | None = None
    """Folder of the record and the report; None if they could not be written."""
    warnings: list[str] = []
    """Warnings of the run's record."""
    tear_down: bool | None = None
    """Whether a failed run's jobs are deleted and its nodes released; None for a run without jobs or without a
    failure."""
    job: JobRef | None = None
    """The job that cannot be polled or read, or that has failed, of a run that goes on."""
    next_attempt: int | None = None
    """Attempt of the next job, in place of one that has failed."""
    ends_by: datetime | None = None
    """Latest end of that job."""
    blind_after: datetime | None = None
    """Since when a job that cannot be polled counts as unseen: each time that this happens has its own."""
    unread_after: datetime | None = None
    """Since when the log of a job that can be polled counts as unreadable: each time has its own."""
    warning: LimitWarning | None = None
    """Share of its limits that a continuing run has used."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The subject of the message."""
    error = caught_error(event.error) if event.error else None
    table = RunTable(read(RunTableEnvironment).run_table)
    if event.warning is not None:
        title, text = near_limit(event.run_id, arn=event.execution_arn, warning=event.warning)
        about = "near its limit"
    elif event.job is not None and error is not None and event.next_attempt is not None:
        title, text = restarted(
            event.run_id,
            arn=event.execution_arn,
            job=event.job,
            error=error,
            next_attempt=event.next_attempt,
            avoided_nodes=event.avoided_nodes,
            refuted_test_nodes=event.refuted_test_nodes,
            progress=event.progress,
            folder=event.folder,
        )
        about = f"restart {event.job.name}"
    elif event.job is not None and error is not None and event.ends_by is not None:
        tell, what, since = (
            (unread, "unread", event.unread_after) if event.unread_after else (unseen, "unseen", event.blind_after)
        )
        title, text = tell(event.run_id, arn=event.execution_arn, job=event.job, error=error, ends_by=event.ends_by)
        about = f"{what} {event.job.name} {since}"
    else:
        record = stored_record(event.run_id) if event.folder is not None else None
        error = _recorded(error, record)
        title = subject(event.run_id, event.status, error=error, warnings=event.warnings)
        about = event.status.value
        text = message(
            event.run_id,
            event.status,
            arn=event.execution_arn,
            instance_type=event.instance_type,
            given_up=event.given_up,
            avoided_nodes=event.avoided_nodes,
            error=error,
            progress=event.progress,
            artifacts=event.artifacts,
            folder=event.folder,
            warnings=event.warnings,
            tear_down=event.tear_down,
            record=record,
        )
    notify_once(table, event.execution_arn, about, subject=title, message=text)
    if event.status is not RunStatus.RUNNING:
        name = error.name if error else None
        note(lambda: table.finish(event.run_id, status=event.status, ended_at=datetime.now(UTC), error_name=name))
    return {"subject": title}


def _recorded(error: RunError | None, record: RunRecord | None) -> RunError | None:
    """The error with what the record adds to it: the state and the function."""
    found = record.error if record is not None else None
    return found if found is not None and error is not None and found.name == error.name else error
