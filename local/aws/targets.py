"""Delivers events of EventBridge's rules and schedules to a queue, a function or a state machine.

Delivery is asynchronous: a caller that uploads an object does not wait for the targets. A function that fails is called
again as Lambda does with asynchronous invocations, then the event goes to the dead-letter queue of the target.
"""

from __future__ import annotations

import logging
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from kubetwin.background import submit

from local.aws.access.evaluation import Caller, Permission
from local.aws.access.guard import AccessDenied, Guard
from local.aws.access.needed_permissions import request_permissions

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
    sender: str
    """ARN of the rule or schedule."""
    role_arn: str | None = None
    """The role of the delivery. None: the policy of the target's resource decides, which a rule needs for queues and
    functions."""
    retries: int = 2
    dead_letter_arn: str | None = None

    @property
    def service(self) -> str:
        """Principal of the service that delivers."""
        return f"{self.sender.split(':')[2]}.amazonaws.com"

    @property
    def caller(self) -> Caller:
        """The principal that delivers."""
        if self.role_arn:
            return Caller("role", self.role_arn, self.sender.split(":")[2])
        return Caller("service", self.service)


class Targets:
    """Delivers events in threads of its own."""

    def __init__(self, client: Callable[[str], Any], guard: Guard, *, time_scale: float) -> None:
        """
        Args:
            client: Returns a boto3 client for a service's name.
            guard: Judges what rules and schedules may do.
            time_scale: Pauses between attempts take `1 / time_scale` of their time.
        """
        self._client, self._guard = client, guard
        self._time_scale = time_scale
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="targets")
        self._pending = 0
        self._changed = threading.Condition()
        self._stopping = threading.Event()

    def send(self, target: Target, text: str) -> Future[None] | None:
        """Deliver an event in another thread.

        Args:
            target: The target.
            text: The event's text; JSON for functions and state machines.

        Returns:
            The delivery, which is done when a function has answered; None while the twin stops.
        """
        if self._stopping.is_set():
            return None
        self._count(+1)
        delivery = submit(self._pool, self._deliver, target, text, name=f"the delivery of an event to {target.arn}")
        delivery.add_done_callback(lambda _: self._count(-1))
        return delivery

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
            try:
                self._authorize(target, target.arn)
            except AccessDenied:
                if not target.dead_letter_arn:
                    raise
                self._enqueue(target, target.dead_letter_arn, text)
            else:
                self._hand_over(target, text)
        except (AccessDenied, ClientError, BotoCoreError) as error:
            if not self._stopping.is_set():
                logger.warning("%s could not be given an event: %s", target.arn, error)

    def _authorize(self, target: Target, arn: str) -> None:
        """Return if the rule or schedule may deliver to a resource.

        Raises:
            AccessDenied: If it may not.
        """
        service, name = arn.split(":")[2], arn.split(":", 5)[5]
        operation, parameters = {
            "sqs": ("SendMessage", {"QueueName": name}),
            "states": ("StartExecution", {"stateMachineArn": arn}),
            "lambda": ("Invoke", {"FunctionName": arn}),
        }[service]
        if target.role_arn is not None:
            self._guard.require_trust(target.service, target.role_arn)
        source = {"aws:sourcearn": (target.sender,)}
        permissions = request_permissions(service, operation, parameters, self._guard.account)
        self._guard.require(
            target.caller,
            [
                Permission(permission.action, permission.resource, {**permission.context, **source})
                for permission in permissions
            ],
        )

    def _hand_over(self, target: Target, text: str) -> None:
        service = target.arn.split(":")[2]
        if service == "sqs":
            self._send(target.arn, text)
        elif service == "states":
            self._client("stepfunctions").start_execution(
                stateMachineArn=target.arn, name=str(uuid.uuid4()), input=text
            )
        elif service == "lambda" and not self._call(target, text) and target.dead_letter_arn:
            self._enqueue(target, target.dead_letter_arn, text)

    def _call(self, target: Target, text: str) -> bool:
        for pause in (0.0, *RETRY_PAUSES_SECONDS[: target.retries]):
            if self._stopping.wait(pause / self._time_scale):
                return False
            answer = self._client("lambda").invoke(FunctionName=target.arn, Payload=text.encode())
            if "FunctionError" not in answer:
                return True
        return False

    def _enqueue(self, target: Target, arn: str, text: str) -> None:
        self._authorize(target, arn)
        self._send(arn, text)

    def _send(self, arn: str, text: str) -> None:
        sqs = self._client("sqs")
        url = sqs.get_queue_url(QueueName=arn.rsplit(":", 1)[1])["QueueUrl"]
        sqs.send_message(QueueUrl=url, MessageBody=text)
