"""Channels over which messages reach people, a module for each."""

from __future__ import annotations

from typing import Protocol


class Channel(Protocol):
    """One way to reach people."""

    def send(self, *, subject: str, message: str) -> None:
        """Send one message, shortened to what the channel carries.

        Raises:
            ServiceUnavailable: If the channel did not take it and may take it later.
        """
