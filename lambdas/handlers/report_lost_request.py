"""Reports the requests for runs that nobody has answered: messages of the dead-letter queue of run requests.

A message is there after StartRun has failed three times over it, whatever the reason, or because EventBridge or
Scheduler could not deliver it. Its sender sees neither. So it is reported as a refusal is, by an object beside the
upload and by one message to the notification channels, and leaves the queue. The run spec is not read: it may be what
has ended StartRun.

A message that cannot be reported stays in the queue, which delivers it again and has an alarm.
"""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

from lambdas.gateways.runs import RunTable
from lambdas.handlers.environment import read
from lambdas.handlers.notifications import notify_once
from lambdas.handlers.task import logger, tracer
from lambdas.handlers.uploads import write_beside
from lambdas.logic.messages import lost_request
from lambdas.logic.run_requests import REQUESTS, Request, Upload, parse_request, refusal_notice, request_identity
from trainflow.deployment.environment import RunTableEnvironment

processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)


@tracer.capture_lambda_handler
def lambda_handler(event: dict[str, Any], context: Any) -> Any:
    """The messages that have to be delivered again."""
    return process_partial_response(event=event, record_handler=report, processor=processor, context=context)


def report(record: SQSRecord) -> None:
    """Report one request, once, unless StartRun has refused it before it failed."""
    request = _request_in(record.body)
    title = request.title if request else "a run request"
    identity = request_identity(request) if request else record.message_id
    logger.error("a request was not answered", extra={"request": title, "body": record.body[:1000]})
    table, about = RunTable(read(RunTableEnvironment).run_table), f"lost {identity}"
    if table.was_told(REQUESTS, refusal_notice(identity)) or table.was_told(REQUESTS, about):
        return
    subject, message = lost_request(title, is_upload=isinstance(request, Upload))
    if isinstance(request, Upload):
        write_beside(request, message)
    notify_once(table, REQUESTS, about, subject=subject, message=message)


def _request_in(body: str) -> Request | None:
    """The request in a message; None if it cannot be read, for whatever reason."""
    try:
        return parse_request(body)
    except Exception:  # noqa: BLE001 (the message has defeated another function already)
        logger.exception("the message cannot be read")
        return None
