"""Stores the output of a container with the time of every line."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from pathlib import Path

TIMESTAMP_LENGTH = len("2026-11-21T03:35:20.387409000Z")
"""Length of the RFC 3339 time in front of every stored line; all have nine digits, so that they sort."""

PREFIX_LENGTH = TIMESTAMP_LENGTH + 1
"""Length of time and separating space."""

_NANOSECONDS = 1_000_000_000

_MAX_HELD_BYTES = 16 * 1024
"""A line that is longer is stored in pieces, as containerd's limit for a log entry has it."""


class LineStamper:
    """Puts times in front of lines.

    Times rise strictly, even where the clock stands still or steps back: readers find a line by its
    time, and continue after the last one that they have read.
    """

    def __init__(self) -> None:
        self._held = b""
        self._continues = False
        self._last = 0
        self._second = -1
        self._second_text = b""

    def stamp(self, chunk: bytes, now: int) -> bytes:
        """The bytes to store after the arrival of `chunk`; an unfinished line is held back.

        Args:
            chunk: Output as it was read, cut anywhere.
            now: Time of arrival, in nanoseconds since the epoch.
        """
        *lines, self._held = (self._held + chunk).split(b"\n")
        parts: list[bytes] = []
        for line in lines:
            parts += (self._prefix(now), line, b"\n")
            self._continues = False
        if len(self._held) > _MAX_HELD_BYTES:
            parts.append(self.flush(now))
        return b"".join(parts)

    def flush(self, now: int) -> bytes:
        """The bytes to store of the unfinished line at the end of the output."""
        if not self._held:
            return b""
        text = self._prefix(now) + self._held
        self._held, self._continues = b"", True
        return text

    def _prefix(self, now: int) -> bytes:
        if self._continues:
            return b""
        self._last = max(now, self._last + 1)
        second, nanoseconds = divmod(self._last, _NANOSECONDS)
        if second != self._second:
            self._second = second
            self._second_text = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second)).encode()
        return b"%b.%09dZ " % (self._second_text, nanoseconds)


class ContainerLog:
    """The stored output of one run of a container, and the news that there is more.

    Args:
        path: The file to write. It is begun anew.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file = path.open("wb", buffering=0)
        self._stamper = LineStamper()
        self._changed = threading.Condition()
        self._size = 0
        self._closed = False

    @property
    def size(self) -> int:
        """Bytes stored so far."""
        return self._size

    def copy_from(self, descriptor: int) -> None:
        """Store everything that is read from a pipe until its writers have closed it.

        Where the disk is full, output is lost: a writer must not stall for its log.
        """
        while chunk := os.read(descriptor, 256 * 1024):
            with contextlib.suppress(OSError):
                self._store(self._stamper.stamp(chunk, time.time_ns()))
        self.close()

    def write_line(self, text: str) -> None:
        """Store a line of the node's own."""
        self._store(self._stamper.stamp(text.encode() + b"\n", time.time_ns()))

    def close(self) -> None:
        """Store the held-back line; the output is complete."""
        if self._closed:
            return
        with contextlib.suppress(OSError):
            self._store(self._stamper.flush(time.time_ns()))
        with self._changed:
            self._closed = True
            self._file.close()
            self._changed.notify_all()

    def wait_for_more(self, offset: int, timeout_seconds: float) -> bool:
        """Wait until the log is longer than `offset` or complete.

        Returns:
            Whether the log may still grow.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._size > offset, timeout_seconds)
            return not self._closed

    def _store(self, text: bytes) -> None:
        if not text:
            return
        with self._changed:
            if self._closed:
                return
            self._file.write(text)
            self._size += len(text)
            self._changed.notify_all()
