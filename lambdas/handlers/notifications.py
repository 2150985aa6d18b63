"""The one function by which handlers send messages to people, and the one list of channels.

Another channel is a module in `lambdas/gateways/notifications/` and a line in `CHANNELS`. Its settings join those of
the topic in `trainflow/models/functions.py`, its permissions those of the topic in the stacks.
"""

from __future__ import annotations

from collections.abc import Callable

from lambdas.gateways.notifications import Channel
from lambdas.gateways.notifications.topic import Topic
from lambdas.handlers.environment import read
from lambdas.handlers.task import logger
from trainflow.models.environment import NotificationEnvironment


def _topic() -> Channel:
    return Topic(read(NotificationEnvironment).topic_arn)


CHANNELS: tuple[Callable[[], Channel], ...] = (_topic,)
"""Channels in the order in which they are tried. Each is connected when there is a message to send."""


def notify(*, subject: str, message: str) -> None:
    """Send a message over every channel.

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
