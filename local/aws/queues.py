"""Invokes Lambda functions for SQS messages: batches, partial answers, retries, and the dead-letter queue.

moto 5.2.5 calls the function inside of SendMessage, one message at a time, deletes all or nothing, and makes what
failed visible at once. Here, a consumer for each mapping reads the queue as Lambda's pollers do, through the API.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from kubetwin.background import later, submit, surviving

from local.aws.replacements import replace

Message = Mapping[str, Any]

THREADS = 5
"""Calls at the same time for a mapping without a limit: Lambda begins with five (developer guide, SQS scaling)."""

RETRY_SECONDS, MIN_RETRY_SECONDS = 60.0, 1.0
"""Pause of a consumer after an unexpected exception, unscaled, and its least length on this machine's clock."""


class QueueConsumers:
    """Reads every queue that is mapped to a function."""

    def __init__(
        self, client: Callable[[str], Any], client_of: Callable[[str, str], Any], *, time_scale: float
    ) -> None:
        """
        Args:
            client: Returns a boto3 client for a service's name.
            client_of: Returns one with the credentials of a role, for the service's name and the role's ARN: Lambda
                reads a queue with the role of the function.
            time_scale: A failed message becomes visible again after `1 / time_scale` of the queue's time-out.
        """
        self._client, self._client_of = client, client_of
        self._time_scale = time_scale
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._pools_lock = threading.Lock()
        self._timers: set[threading.Timer] = set()
        self._stopped = False

    def start(self) -> None:
        """Replace moto's own delivery: poll a queue whenever a message arrives."""
        from moto.awslambda.models import LambdaBackend
        from moto.sqs.models import Queue

        add, create = Queue.add_message, LambdaBackend.create_event_source_mapping
        update = LambdaBackend.update_event_source_mapping

        def add_message(queue: Any, message: Any) -> None:
            seconds = _scale_delay(message, self._time_scale)
            add(queue, message)
            if seconds > 0:
                self._wake_later(queue.queue_arn, seconds)
            else:
                self.wake(queue.queue_arn)

        def create_event_source_mapping(backend: Any, spec: Any) -> Any:
            mapping = create(backend, spec)
            _forget(mapping)
            self.wake(mapping.event_source_arn)
            return mapping

        def update_event_source_mapping(backend: Any, uuid: str, spec: Any) -> Any:
            mapping = update(backend, uuid, spec)
            if mapping is not None:  # one that is enabled later finds messages that wait
                _forget(mapping)
                self.wake(mapping.event_source_arn)
            return mapping

        replace(Queue, "add_message", add_message)
        replace(LambdaBackend, "update_event_source_mapping", update_event_source_mapping)
        replace(LambdaBackend, "create_event_source_mapping", create_event_source_mapping)

    def stop(self) -> None:
        """Stop to poll."""
        self._stopped = True
        for timer in list(self._timers):
            timer.cancel()
        with self._pools_lock:
            pools = list(self._pools.values())
        for pool in pools:
            pool.shutdown(cancel_futures=True)

    def wake(self, queue_arn: str) -> None:
        """Poll a queue soon, if it is mapped to a function."""
        for mapping in _mappings(queue_arn):
            if not self._stopped:
                submit(self._pool(mapping), self._keep_consuming, mapping, name=f"the consumer of {queue_arn}")

    def _keep_consuming(self, mapping: Any) -> None:
        """Consume, and begin again later after an exception, as Lambda's pollers do."""
        arn = mapping.event_source_arn
        if not surviving(self._consume, mapping, name=f"the consumer of {arn}") and not self._stopped:
            self._wake_later(arn, max(MIN_RETRY_SECONDS, RETRY_SECONDS / self._time_scale))

    def _pool(self, mapping: Any) -> ThreadPoolExecutor:
        """The threads of a mapping: as many calls of its function go on at the same time."""
        with self._pools_lock:
            if mapping.uuid not in self._pools:
                scaling = mapping.scaling_config or {}
                threads = scaling.get("MaximumConcurrency", THREADS)
                self._pools[mapping.uuid] = ThreadPoolExecutor(threads, thread_name_prefix="queues")
            return self._pools[mapping.uuid]

    def _consume(self, mapping: Any) -> None:
        sqs = self._client_of("sqs", _function_role(mapping))
        url = self._client("sqs").get_queue_url(QueueName=mapping.event_source_arn.rsplit(":", 1)[1])["QueueUrl"]
        while messages := self._receive(sqs, url, mapping.batch_size):
            failed = self._invoke(mapping, messages)
            for message in messages:
                if message["MessageId"] not in failed:
                    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
            if failed:
                self._try_later(url, mapping, [m for m in messages if m["MessageId"] in failed])

    def _receive(self, sqs: Any, url: str, batch_size: int) -> list[Message]:
        received = sqs.receive_message(
            QueueUrl=url,
            MaxNumberOfMessages=min(batch_size, 10),
            WaitTimeSeconds=0,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        messages: list[Message] = received.get("Messages", [])
        return messages

    def _invoke(self, mapping: Any, messages: Iterable[Message]) -> set[str]:
        """Ids of the messages that were not processed."""
        records = [_record(mapping, message) for message in messages]
        answer = self._client("lambda").invoke(
            FunctionName=mapping.function_name, Payload=json.dumps({"Records": records}).encode()
        )
        if "FunctionError" in answer:
            return {record["messageId"] for record in records}
        if "ReportBatchItemFailures" not in (mapping.function_response_types or ()):
            return set()
        return failed_messages(answer["Payload"].read(), {record["messageId"] for record in records})

    def _try_later(self, url: str, mapping: Any, messages: Iterable[Message]) -> None:
        """Shorten the visibility time-out of the messages. Lambda only waits for it, so no role is asked."""
        sqs = self._client("sqs")
        attributes = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
        seconds = max(1, round(int(attributes["VisibilityTimeout"]) / self._time_scale))
        for message in messages:
            sqs.change_message_visibility(
                QueueUrl=url, ReceiptHandle=message["ReceiptHandle"], VisibilityTimeout=seconds
            )
        self._wake_later(mapping.event_source_arn, seconds)

    def _wake_later(self, queue_arn: str, seconds: float) -> None:
        timer = later(seconds + 0.1, self.wake, queue_arn, name=f"the consumer of {queue_arn}")
        self._timers.add(timer)
        timer.start()


def failed_messages(answer: bytes, ids: set[str]) -> set[str]:
    """Ids of the messages that a function reports as failed. An answer of another form fails all of them.

    Source: Lambda developer guide, 'Success and failure conditions' of batches from SQS.
    """
    try:
        result = json.loads(answer or "null") or {}
        failures = result.get("batchItemFailures") or ()
        failed = {failure["itemIdentifier"] for failure in failures}
    except (ValueError, AttributeError, KeyError, TypeError):
        return ids
    return failed if failed <= ids else ids


def _scale_delay(message: Any, time_scale: float) -> float:
    """Shorten the delay of a message; returns the seconds that are left."""
    now = time.time() * 1000
    if message.delayed_until <= now:
        return 0.0
    message.delayed_until = now + (message.delayed_until - now) / time_scale
    return float(message.delayed_until - now) / 1000


def _mappings(queue_arn: str) -> list[Any]:
    from moto.awslambda.models import lambda_backends

    _, _, _, region, account, _ = queue_arn.split(":")
    mappings = list(lambda_backends[account][region]._event_source_mappings.values())
    return [mapping for mapping in mappings if mapping.event_source_arn == queue_arn and mapping.enabled]


def _function_role(mapping: Any) -> str:
    from moto.awslambda.models import lambda_backends

    return str(lambda_backends[mapping.account_id][mapping.region].get_function(mapping.function_arn).role)


def _forget(mapping: Any) -> None:
    """Keep moto's own queue from calling the function."""
    from moto.sqs.models import sqs_backends

    name = mapping.event_source_arn.rsplit(":", 1)[1]
    sqs_backends[mapping.account_id][mapping.region].queues[name].lambda_event_source_mappings.clear()


NO_LISTS: Mapping[str, Any] = {"stringListValues": [], "binaryListValues": []}
"""Fields of an attribute in a record that SQS does not use yet."""


def _decapitalized(name: str) -> str:
    return name[:1].lower() + name[1:]


def _record(mapping: Any, message: Message) -> dict[str, Any]:
    return {
        "messageId": message["MessageId"],
        "receiptHandle": message["ReceiptHandle"],
        "body": message["Body"],
        "attributes": message.get("Attributes", {}),
        "messageAttributes": {
            name: {**{_decapitalized(key): value for key, value in each.items()}, **NO_LISTS}
            for name, each in message.get("MessageAttributes", {}).items()
        },
        "md5OfBody": message["MD5OfBody"],
        **({"md5OfMessageAttributes": digest} if (digest := message.get("MD5OfMessageAttributes")) else {}),
        "eventSource": "aws:sqs",
        "eventSourceARN": mapping.event_source_arn,
        "awsRegion": mapping.region,
    }
