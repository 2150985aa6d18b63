"""Runs when an execution's status changes. After its end: writes the final record, and tears down what is left.

Executions that end as ABORTED or TIMED_OUT, or as FAILED because their history is full, do not run a Catch and so skip
the tear-down. That of the others may have failed: it is repeated here.

EventBridge's event names the execution. The resources of the run are listed in the run table, not in the event:
EventBridge leaves the input out where the state machine is encrypted with a customer's key. Safe to repeat.

When the record has been written, an event of Trainflow's own says how the run ended; it is sent again if the function
is repeated.

A run may have been redriven since the end that the event is about. It goes on then, and nothing is done; its next end
has an event of its own. The event that it runs again reopens its row in the run table.

A run that a person stops is torn down whatever its spec says; the others follow `teardown`.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel, Field

from lambdas.gateways import event_bus, executions
from lambdas.gateways.runs import RunTable
from lambdas.handlers import backends, recording
from lambdas.handlers.environment import read
from lambdas.handlers.notifications import notify_once
from lambdas.handlers.releasing import Released, release_caches, release_run
from lambdas.handlers.task import logger, task
from lambdas.logic.messages import stopped, subject
from trainflow.deployment.environment import ArtifactEnvironment, DeploymentEnvironment, RunTableEnvironment
from trainflow.record.failure import explained
from trainflow.workflow.run_ended import DETAIL_TYPE, SOURCE, run_ended
from trainflow.workflow.run_record import RunRecord, RunStatus
from trainflow.workflow.run_table import RunRow

NOTHING = Released([], 0)


class Detail(BaseModel):
    name: str
    execution_arn: str = Field(alias="executionArn")
    status: RunStatus
    stop_date: datetime | None = Field(default=None, alias="stopDate")
    """End of the execution, which EventBridge sends in milliseconds since the epoch."""
    error: str | None = None
    """Name of the error; None where EventBridge leaves it out."""
    cause: str | None = None


class Event(BaseModel):
    detail: Detail


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The jobs and nodes that were released."""
    detail, table = event.detail, RunTable(read(RunTableEnvironment).run_table)
    run_id = recording.own_run_id(detail.name, detail.execution_arn)
    if run_id is None:
        return _answer(None, NOTHING)
    logger.append_keys(run_id=run_id)
    row = table.find(run_id)
    if detail.status is RunStatus.RUNNING:
        if row is not None and row.status is not RunStatus.RUNNING:
            _reopen_if_it_goes_on(table, run_id, detail)
        return _answer(run_id, NOTHING)
    if row is None:
        _announce(_record(run_id, detail), detail)
        return _answer(run_id, NOTHING)
    if _reopen_if_it_goes_on(table, run_id, detail):
        return _answer(run_id, NOTHING)
    release_caches(run_id)
    ended = row.model_copy(update={"status": detail.status})
    released = _keep(row) if ended.needs_nodes else _release(row)
    if _has_ended_by_itself(row, detail, table):
        if row.status is RunStatus.RUNNING:
            _note_end(table, row, detail)
        _announce(_record(run_id, detail), detail)
        return _answer(run_id, released)
    record, failure = _try_to_record(run_id, detail)
    if not _is_noted(row, detail):
        # The message is sent before the row is written, which says that this was done.
        _notify(table, ended, detail, record=record)
        error_name = detail.error or ended.status.value
        table.finish(run_id, status=ended.status, ended_at=datetime.now(UTC), error_name=error_name)
        # It may have been redriven meanwhile; the event about that found a row that had not ended yet.
        _reopen_if_it_goes_on(table, run_id, detail)
    if failure is not None:
        raise failure  # so that Lambda retries
    if record is not None:
        _announce(record, detail)
    return _answer(run_id, released)


def _has_ended_by_itself(row: RunRow, detail: Detail, table: RunTable) -> bool:
    """Whether the execution did its own tear-down, as far as it could, and sent the message."""
    if detail.status is not RunStatus.FAILED:
        return detail.status is RunStatus.SUCCEEDED
    return row.status is RunStatus.FAILED or _was_told(detail, table)


def _was_told(detail: Detail, table: RunTable) -> bool:
    """Whether the execution sent the message about this end, although it could not write its row.

    A redriven run may end twice in the same way, and the note may be of the first end.
    """
    if not table.was_told(detail.execution_arn, detail.status.value):
        return False
    found = executions.describe(detail.execution_arn)
    return found is None or found.redriven_at is None


def _note_end(table: RunTable, row: RunRow, detail: Detail) -> None:
    """Write the end that the execution's own Notify could not write. What the run held has been released by now."""
    table.end(
        row.run_id,
        execution_arn=detail.execution_arn,
        status=detail.status,
        ended_at=datetime.now(UTC),
        error_name=detail.error,
    )
    # It may have been redriven meanwhile; the event about that found a row that had not ended yet.
    _reopen_if_it_goes_on(table, row.run_id, detail)


def _reopen_if_it_goes_on(table: RunTable, run_id: str, detail: Detail) -> bool:
    """Whether the run goes on; its row in the run table says so then. Safe to repeat."""
    goes_on = _goes_on(detail)
    if goes_on:
        table.reopen(run_id, execution_arn=detail.execution_arn)
    return goes_on


def _goes_on(detail: Detail) -> bool:
    """Whether the execution has been redriven since this end, and runs.

    The description may be older than the event: a running execution that was not redriven has ended.
    """
    found = executions.describe(detail.execution_arn)
    if found is None or found.status is not RunStatus.RUNNING or found.redriven_at is None:
        return False
    return detail.stop_date is None or found.redriven_at > detail.stop_date


def _is_noted(row: RunRow, detail: Detail) -> bool:
    """Whether the table has this end, and so the message was sent. A redriven run may end twice in the same way."""
    is_earlier_end = detail.stop_date is not None and row.ended_at is not None and row.ended_at < detail.stop_date
    return row.status is detail.status and not is_earlier_end


def _answer(run_id: str | None, released: Released) -> dict[str, Any]:
    return {"run_id": run_id, "deleted_jobs": released.jobs, "nodes_released": released.nodes}


def _record(run_id: str, detail: Detail) -> RunRecord:
    error = explained(detail.error, detail.cause or "") if detail.error else None
    return recording.write_record(
        run_id, detail.execution_arn, status=detail.status, error=error, ended_at=detail.stop_date
    )


def _try_to_record(run_id: str, detail: Detail) -> tuple[RunRecord | None, Exception | None]:
    """The record, or the error that prevented it, which must not prevent the message and is raised at the end."""
    try:
        return _record(run_id, detail), None
    except Exception as failure:  # noqa: BLE001 (whatever it is, it is raised in the end)
        logger.exception("the record could not be written")
        return None, failure


def _announce(record: RunRecord, detail: Detail) -> None:
    """Send the event that the run has ended and its record lies in S3."""
    event = run_ended(
        record,
        deployment=read(DeploymentEnvironment).deployment,
        execution_arn=detail.execution_arn,
        folder=read(ArtifactEnvironment).url_of(record.run_id),
        now=datetime.now(UTC),
    )
    event_bus.send(event.model_dump_json(), source=SOURCE, detail_type=DETAIL_TYPE)


def _release(row: RunRow) -> Released:
    return release_run(backends.connect(row.backend), row.run_id, [row.instance_type, *row.fallback])


def _keep(row: RunRow) -> Released:
    """Leave pods and nodes to the person who looks at them; the record says where they are."""
    recording.keep_placement(lambda: backends.connect(row.backend), row.run_id)
    return NOTHING


def _notify(table: RunTable, row: RunRow, detail: Detail, *, record: RunRecord | None) -> None:
    text = stopped(
        row.run_id,
        row.status,
        arn=detail.execution_arn,
        error_name=detail.error,
        kept=row.needs_nodes,
        folder=read(ArtifactEnvironment).url_of(row.run_id) if record is not None else None,
        warnings=record.warnings if record is not None else (),
        record=record,
    )
    about = f"cleaned up {detail.status.value} {detail.stop_date}"  # a redriven run may end twice in the same way
    notify_once(table, detail.execution_arn, about, subject=subject(row.run_id, row.status), message=text)
