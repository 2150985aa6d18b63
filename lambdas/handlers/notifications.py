"""The one way in which handlers tell people something, and the one list of channels that carry it.

Another channel is a module in `lambdas/gateways/notifications/` and a line in `CHANNELS`. Its settings join those of
the topic in `trainflow/models/functions.py`, its permissions those of the topic in the stacks.
"""

from __future__ import annotations

from collections.abc import Callable

from lambdas.gateways.notifications import Channel
from lambdas.gateways.notifications.topic import Topic
from lambdas.handlers.environment import NotificationEnvironment, read
from lambdas.handlers.task import logger


def _topic() -> Channel:
    return Topic(read(NotificationEnvironment).topic_arn)


CHANNELS: tuple[Callable[[], Channel], ...] = (_topic,)
"""In the order in which they are tried. Each is connected when there is something to send."""


def notify(*, subject: str, message: str) -> None:
    """Send a message over every channel.

    A message that one channel has taken counts as sent: a retry would send it there again. So the failure of another
    channel is logged, and only the failure of all of them is raised.

    Raises:
        Exception: That of the first channel, if none took the message.
    """
    failures = []
    for connect in CHANNELS:
        try:
            connect().send(subject=subject, message=message)
        except Exception as failure:  # noqa: BLE001 (the other channels may still take it)
            failures.append(failure)
    if len(failures) == len(CHANNELS):
        raise failures[0]
    for reason in map(str, failures):
        logger.error("a channel did not take a message", extra={"subject": subject, "reason": reason})
