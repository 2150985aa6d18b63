"""Starts the runs that the queue's messages request: by an uploaded run spec or by a schedule.

The sender of a request does not see an error, so a refused request is reported by one message to the notification
channels, and a refused upload by an object beside it, for a person who has not subscribed to them. After an error of
AWS the message stays in the queue, which delivers it again and finally moves it to the dead-letter queue, which
ReportLostRequest reads. The queue hands over one message at a time: one that ends the function takes no other along.

Queue and EventBridge deliver at least once, and a function that has crashed is called again. A run is named after its
request and a message after what it is about, so each happens once.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from lambdas.gateways import executions, objects, queues
from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import read
from lambdas.handlers.notifications import notify_once
from lambdas.handlers.task import logger, tracer
from lambdas.handlers.uploads import is_newest, write_beside
from lambdas.logic.messages import already_run, overlap_message, refusal
from lambdas.logic.overlaps import Turn, decide_turn, is_going
from lambdas.logic.run_requests import (
    REQUESTS,
    Execution,
    Request,
    Scheduled,
    Upload,
    execution_of_schedule,
    execution_of_upload,
    is_answered_by,
    parse_request,
    refusal_notice,
    request_identity,
)
from trainflow.deployment.environment import RunTableEnvironment, WorkflowEnvironment
from trainflow.errors import InvalidRunSpec, RunRequestInvalid, ServiceUnavailable, TrainflowError
from trainflow.record.history import arn_of_execution
from trainflow.spec.document import MAX_BYTES
from trainflow.workflow.run_table import ScheduleRow

TURN_POLL_SECONDS = 60
"""Seconds between two attempts of a scheduled run that waits for its predecessor."""

# A message that failed is not an error of the function: the queue delivers it again.
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)


@tracer.capture_lambda_handler
def lambda_handler(event: dict[str, Any], context: Any) -> Any:
    """The messages that have to be retried."""
    return process_partial_response(event=event, record_handler=answer, processor=processor, context=context)


def answer(record: SQSRecord) -> None:
    """Start the run that one message requests, or send the reason why it cannot be run."""
    title, request = "a run request", None
    try:
        request = parse_request(record.body)
        title = request.title
        if isinstance(request, Scheduled) and request.overlap != "allow":
            _start_in_turn(request, record)
        else:
            execution = _requested_execution(request)
            if not _start(request, execution) and isinstance(request, Upload) and _has_run_before(request, execution):
                return
        _withdraw_refusal(request)
    except (InvalidRunSpec, RunRequestInvalid) as error:
        logger.warning("request refused", extra={"request": title, "reason": str(error)[:1000]})
        _refuse(request, error, title=title, identity=request_identity(request) if request else record.message_id)
    except Exception:
        logger.exception("request not answered: the queue tries it again", extra={"request": title})
        raise


def _refuse(request: Request | None, error: TrainflowError, *, title: str, identity: str) -> None:
    """Say why a request starts no run, once. A file that is gone is not explained in the bucket: its owner deleted it.

    A request that comes again when this was said changes nothing.
    """
    table, about = RunTable(read(RunTableEnvironment).run_table), refusal_notice(identity)
    if table.was_told(REQUESTS, about):
        return
    subject, message = refusal(title, error)
    if isinstance(request, Upload) and isinstance(error, InvalidRunSpec):
        write_beside(request, message)
    notify_once(table, REQUESTS, about, subject=subject, message=message)


def _withdraw_refusal(request: Request) -> None:
    """Delete the reason of an earlier refusal. The run has started, so an exception must not cause another attempt."""
    if isinstance(request, Upload):
        try:
            if is_newest(request):
                objects.delete(request.bucket, request.refusal_key)
        except Exception:  # noqa: BLE001 (whatever it is, the run has started)
            logger.exception("an earlier refusal could not be deleted", extra={"request": request.title})


def _requested_execution(request: Request) -> Execution:
    if isinstance(request, Upload):
        content = objects.read(
            request.bucket, request.key, version_id=request.version_id, limit_bytes=MAX_BYTES + 1
        )  # one byte more than is allowed shows that it is too large
        return execution_of_upload(request, content)
    return execution_of_schedule(request)


def _start_in_turn(request: Scheduled, record: SQSRecord) -> None:
    """Start a schedule's run unless its previous one is active; then skip it, or try again in a minute.

    A request may be delivered twice: the run is named after its scheduled time, and starts once. A skipped run stays
    skipped, since its owner has been notified, also if the previous run has ended meanwhile.
    """
    execution, now = _requested_execution(request), datetime.now(UTC)
    arn = arn_of_execution(read(WorkflowEnvironment).training_state_machine_arn, execution.name)
    table = RunTable(read(RunTableEnvironment).run_table)
    row = table.schedule(request.schedule)
    if executions.describe(arn) is not None or table.was_told(REQUESTS, _about(request, waits=False)):
        return
    turn = decide_turn(request, row, is_going=_is_another_one_going(row, arn, now=now), now=now)
    if turn is Turn.START or row is None:
        fresh = ScheduleRow(schedule=request.schedule, execution_arn=arn, seen_at=now)
        _store(table, fresh, previous=row)
        _start(request, execution)
        return
    if turn is Turn.WAIT:
        waiting = {"waiting": request.scheduled_at, "seen_at": now}
        _store(table, row.model_copy(update=waiting), previous=row)
        queues.send_later(record.event_source_arn, record.body, delay_seconds=TURN_POLL_SECONDS)
    waits = turn is Turn.WAIT
    subject, message = overlap_message(request.title, request.scheduled_at, waits=waits, arn=row.execution_arn)
    notify_once(table, REQUESTS, _about(request, waits=waits), subject=subject, message=message)


def _is_another_one_going(row: ScheduleRow | None, arn: str, *, now: datetime) -> bool:
    if row is None or row.execution_arn == arn:
        return False
    found = executions.describe(row.execution_arn)
    return is_going(row, found.status if found else None, now=now)


def _store(table: RunTable, row: ScheduleRow, *, previous: ScheduleRow | None) -> None:
    if not table.store_schedule(row, previous=previous):
        raise ServiceUnavailable(f"Two requests of the schedule {row.schedule} came at once.")  # the queue tries again


def _about(request: Scheduled, *, waits: bool) -> str:
    return f"{'waits' if waits else 'skipped'} {request_identity(request)}"


def _start(request: Request, execution: Execution) -> bool:
    """Whether the run was started by this call; otherwise there is or was one of exactly this spec."""
    workflow = read(WorkflowEnvironment).training_state_machine_arn
    started = executions.start(workflow, name=execution.name, document=execution.document)
    found = "run started" if started.is_new else "the run exists already"
    logger.info(found, extra={"request": request.title, "run_id": execution.name, "execution_arn": started.arn})
    return started.is_new


def _has_run_before(upload: Upload, execution: Execution) -> bool:
    """Whether the run of exactly this spec had ended when it was uploaded: its owner expects a new one.

    The reason is written beside every such upload, and sent once for each file.
    """
    arn = arn_of_execution(read(WorkflowEnvironment).training_state_machine_arn, execution.name)
    found = executions.describe(arn)
    if found is None or is_answered_by(upload, found):
        return False
    subject, message = already_run(upload.title, execution.name, found.status)
    write_beside(upload, message)
    table = RunTable(read(RunTableEnvironment).run_table)
    notify_once(table, arn, f"{upload.title} uploaded again", subject=subject, message=message)
    return True
