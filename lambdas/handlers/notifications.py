"""Functions for handlers that send messages to people, and the list of channels.

Another channel is a module in `lambdas/gateways/notifications/` and a line in `CHANNELS`. Its settings join those of
the topic in `trainflow/deployment/functions.py`, its permissions those of the topic in the stacks.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from botocore.exceptions import ClientError

from lambdas.gateways.notifications import Channel
from lambdas.gateways.notifications.topic import Topic
from lambdas.gateways.runs import NoticeState, RunTable
from lambdas.handlers.environment import read
from lambdas.handlers.task import logger
from trainflow.deployment.environment import NotificationEnvironment
from trainflow.errors import ServiceUnavailable


def _topic() -> Channel:
    return Topic(read(NotificationEnvironment).topic_arn)


CHANNELS: tuple[Callable[[], Channel], ...] = (_topic,)
"""Channels, in the order of use. Each is connected when a message is sent."""


SENDING_TIME = timedelta(seconds=20)
"""Time for sending a message and noting it. Another call waits as long before it sends the message instead."""

POLL_SECONDS = 0.5
"""Time between two questions whether another call has sent a message."""


def notify_once(table: RunTable, source: str, about: str, *, subject: str, message: str) -> None:
    """Send a message about an event, unless it has been sent. Safe to repeat, also at the same time.

    The message is claimed, sent, and then noted as sent. A call that crashes before it sends leaves a claim that the
    next one takes over. One that crashes after the channel accepted the message, and before the note, has it sent a
    second time: a repeated message is better than none.

    Args:
        table: The table of notices.
        source: What the message is about: an execution's ARN, or the sort of a request.
        about: The event.
        subject: Subject of the message.
        message: Its text.

    Raises:
        Exception: The error of the first channel, if no channel accepted the message.
    """
    while (state := _claim(table, source, about)) is NoticeState.BEING_SENT:
        time.sleep(POLL_SECONDS)
    if state is NoticeState.TOLD:
        return
    try:
        notify(subject=subject, message=message)
    except Exception:
        note(lambda: table.release_notice(source, about))
        raise
    note(lambda: table.tell(source, about, now=datetime.now(UTC)))


def _claim(table: RunTable, source: str, about: str) -> NoticeState:
    """Claim a message; a table that cannot be written to keeps none back."""
    now = datetime.now(UTC)
    try:
        return table.claim_notice(source, about, now=now, until=now + SENDING_TIME)
    except (ServiceUnavailable, ClientError) as unavailable:
        logger.error("the message is not claimed in the run table", extra={"reason": str(unavailable)})
    return NoticeState.TOLD if table.was_told(source, about) else NoticeState.CLAIMED


def note(write: Callable[[], None]) -> None:
    """Write to the run table after a message. An error must not retry the function, which would send it again."""
    try:
        write()
    except (ServiceUnavailable, ClientError) as unavailable:
        logger.error("the message is not noted in the run table", extra={"reason": str(unavailable)})


def notify(*, subject: str, message: str) -> None:
    """Send a message over every channel, once for each call: `notify_once` knows what has been sent.

    A message that one channel has accepted counts as sent: a retry would send it there again. So the failure of another
    channel is logged, and only the failure of all of them is raised.

    Raises:
        Exception: The error of the first channel, if no channel accepted the message.
    """
    failures = []
    for connect in CHANNELS:
        try:
            connect().send(subject=subject, message=message)
        except Exception as failure:  # noqa: BLE001 (the other channels may still accept it)
            failures.append(failure)
    if len(failures) == len(CHANNELS):
        raise failures[0]
    for reason in failures:
        logger.error("a channel did not accept a message", extra={"subject": subject, "reason": str(reason)})
