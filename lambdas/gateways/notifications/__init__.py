"""Channels that send messages to people, one module each."""

from __future__ import annotations

from typing import Protocol


class Channel(Protocol):
    """One way of sending messages to people."""

    def send(self, *, subject: str, message: str) -> None:
        """Send one message, shortened to what the channel accepts.

        Raises:
            ServiceUnavailable: If the channel refused the message now and may accept it later.
        """
