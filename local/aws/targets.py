"""Delivers events of EventBridge's rules and schedules to a queue, a function or a state machine.

Delivery is asynchronous: a caller that uploads an object does not wait for the targets. A function that fails is called
again as Lambda does with asynchronous invocations, then the event goes to the dead-letter queue of the target.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

logger = logging.getLogger(__name__)

RETRY_PAUSES_SECONDS = (60.0, 120.0)
"""Pauses before the second and the third call of a function that fails (Lambda developer guide, asynchronous
invocation)."""

THREADS = 4
STOP_SECONDS = 5.0


@dataclass(frozen=True, kw_only=True)
class Target:
    """The target of an event."""

    arn: str
    retries: int = 2
    dead_letter_arn: str | None = None


class Targets:
    """Delivers events in threads of its own."""

    def __init__(self, client: Callable[[str], Any], *, time_scale: float) -> None:
        """
        Args:
            client: Returns a boto3 client for a service's name.
            time_scale: Pauses between attempts take `1 / time_scale` of their time.
        """
        self._client = client
        self._time_scale = time_scale
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="targets")
        self._pending = 0
        self._changed = threading.Condition()
        self._stopping = threading.Event()

    def send(self, target: Target, text: str) -> None:
        """Deliver an event in another thread.

        Args:
            target: The target.
            text: The event's text; JSON for functions and state machines.
        """
        if not self._stopping.is_set():
            self._count(+1)
            self._pool.submit(self._deliver, target, text).add_done_callback(lambda _: self._count(-1))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Make `drain` wait as long as the block runs, because it is about to send an event."""
        self._count(+1)
        try:
            yield
        finally:
            self._count(-1)

    def drain(self, timeout_seconds: float) -> bool:
        """Wait until everything was delivered and every called function has answered.

        Returns:
            Whether that was so in time.
        """
        with self._changed:
            return self._changed.wait_for(lambda: self._pending == 0, timeout_seconds)

    def stop(self) -> None:
        """Stop to deliver; functions that were called have a moment to answer."""
        self._stopping.set()
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.drain(STOP_SECONDS)

    def _count(self, change: int) -> None:
        with self._changed:
            self._pending += change
            self._changed.notify_all()

    def _deliver(self, target: Target, text: str) -> None:
        try:
            self._hand_over(target, text)
        except (ClientError, BotoCoreError) as error:
            if not self._stopping.is_set():
                logger.warning("%s could not be given an event: %s", target.arn, error)

    def _hand_over(self, target: Target, text: str) -> None:
        service = target.arn.split(":")[2]
        if service == "sqs":
            self._enqueue(target.arn, text)
        elif service == "states":
            self._client("stepfunctions").start_execution(
                stateMachineArn=target.arn, name=str(uuid.uuid4()), input=text
            )
        elif service == "lambda" and not self._call(target, text) and target.dead_letter_arn:
            self._enqueue(target.dead_letter_arn, text)

    def _call(self, target: Target, text: str) -> bool:
        for pause in (0.0, *RETRY_PAUSES_SECONDS[: target.retries]):
            if self._stopping.wait(pause / self._time_scale):
                return False
            answer = self._client("lambda").invoke(FunctionName=target.arn, Payload=text.encode())
            if "FunctionError" not in answer:
                return True
        return False

    def _enqueue(self, arn: str, text: str) -> None:
        sqs = self._client("sqs")
        url = sqs.get_queue_url(QueueName=arn.rsplit(":", 1)[1])["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=text)
