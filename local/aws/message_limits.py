"""Messages and batches that SQS refuses, and moto 5.2.5 takes: empty and oversized ones, batches beyond ten entries,
receipts of a FIFO queue that have expired.

Sources: SQS API reference; answers recorded on AWS (localstack/localstack, `test_sqs.snapshot.json`). All patches
replace methods of moto: check them again when moto's version is raised.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from local.aws.replacements import replace

MAX_BATCH_BYTES = 1024 * 1024
MAX_ENTRIES = 10
ENTRY_ID = re.compile(r"[\w-]{1,80}", re.ASCII)


def apply_all() -> None:
    """Apply every patch of this module."""
    _sizes()
    _batches()
    _expired_receipts()


def message_bytes(body: str, attributes: Mapping[str, Mapping[str, Any]] | None) -> int:
    """The size of a message: its body, and names, types and values of its attributes."""
    size = len(body.encode())
    for name, attribute in (attributes or {}).items():
        size += len(name.encode()) + len(str(attribute.get("DataType") or "").encode())
        size += len(str(attribute.get("StringValue") or attribute.get("BinaryValue") or "").encode())
    return size


def _sizes() -> None:
    """SendMessage refuses an empty message, and one that is larger than the queue's `MaximumMessageSize`; in a batch,
    such a message fails for itself."""
    from moto.sqs.exceptions import BatchRequestTooLong, InvalidParameterValue, SQSException
    from moto.sqs.models import SQSBackend

    send_message, send_message_batch = SQSBackend.send_message, SQSBackend.send_message_batch

    def too_long(queue: Any, body: str, attributes: Any) -> bool:
        return message_bytes(body, attributes) > int(queue.maximum_message_size)

    def send_fitting(self: Any, queue_name: str, message_body: str, message_attributes: Any = None, **rest: Any) -> Any:
        if not message_body:
            raise SQSException("MissingParameter", "The request must contain the parameter MessageBody.")
        queue = self.get_queue(queue_name)
        if too_long(queue, message_body, message_attributes):
            said = f"Message must be shorter than {queue.maximum_message_size} bytes."
            raise InvalidParameterValue(f"One or more parameters are invalid. Reason: {said}")
        return send_message(self, queue_name, message_body, message_attributes=message_attributes, **rest)

    def send_batch(self: Any, queue_name: str, entries: Mapping[str, Any]) -> Any:
        total = sum(message_bytes(each["MessageBody"], each.get("MessageAttributes")) for each in entries.values())
        if total > MAX_BATCH_BYTES:
            raise BatchRequestTooLong(total)
        queue = self.get_queue(queue_name)
        said = f"Message must be shorter than {queue.maximum_message_size} bytes."
        fails = {
            key: {
                "Id": each["Id"],
                "SenderFault": True,
                "Code": "InvalidParameterValue",
                "Message": f"One or more parameters cannot be validated. Reason: {said}",
            }
            for key, each in entries.items()
            if too_long(queue, each["MessageBody"], each.get("MessageAttributes"))
        }
        fitting = {key: each for key, each in entries.items() if key not in fails}
        sent, failed = send_message_batch(self, queue_name, fitting)
        return sent, [*failed, *fails.values()]

    replace(SQSBackend, "send_message", send_fitting)
    replace(SQSBackend, "send_message_batch", send_batch)


def _batches() -> None:
    """Batches of deletions and time-outs have the limits of those that send."""
    from moto.sqs.exceptions import InvalidBatchEntryId, TooManyEntriesInBatchRequest
    from moto.sqs.responses import SQSResponse

    def limited(present: Any) -> Any:
        def answer(self: Any) -> Any:
            entries = self._get_param("Entries", [])
            if len(entries) > MAX_ENTRIES:
                raise TooManyEntriesInBatchRequest(len(entries))
            if not all(ENTRY_ID.fullmatch(str(each.get("Id"))) for each in entries):
                raise InvalidBatchEntryId
            return present(self)

        return answer

    def without_empty_failures(present: Any) -> Any:
        def answer(self: Any) -> Any:
            found = present(self)
            if not found.result.get("Failed"):
                found.result.pop("Failed", None)
            return found

        return answer

    for operation in ("delete_message_batch", "change_message_visibility_batch"):
        replace(SQSResponse, operation, without_empty_failures(limited(getattr(SQSResponse, operation))))
    replace(SQSResponse, "send_message_batch", without_empty_failures(SQSResponse.send_message_batch))


def _expired_receipts() -> None:
    """A message of a FIFO queue is not deleted by a receipt whose visibility time-out has passed."""
    from moto.sqs.exceptions import InvalidParameterValue
    from moto.sqs.models import Queue

    delete_message = Queue.delete_message

    def delete_visible(self: Any, receipt_handle: str) -> None:
        held = [message for message in self._messages if message.had_receipt_handle(receipt_handle)]
        if self.fifo_queue and any(message.visible for message in held):
            said = f"Value {receipt_handle} for parameter ReceiptHandle is invalid."
            raise InvalidParameterValue(f"{said} Reason: The receipt handle has expired.")
        delete_message(self, receipt_handle)

    replace(Queue, "delete_message", delete_visible)
