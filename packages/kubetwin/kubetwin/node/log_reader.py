"""Reads stored logs: from the end, from a time, a part of them; never the whole file to find a place."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import BinaryIO

from kubetwin.node.log_writer import PREFIX_LENGTH, TIMESTAMP_LENGTH

_BLOCK_BYTES = 64 * 1024

_PROBE_BYTES = 4 * 1024
"""Read at once in search of a line's beginning: a few lines' worth."""


@dataclass(frozen=True, kw_only=True)
class LogOptions:
    """Options of a request for a log, as in the API."""

    follow: bool = False
    tail_lines: int | None = None
    since: datetime | None = None
    """Only lines at or after this time."""
    timestamps: bool = False
    limit_bytes: int | None = None
    """Output ends after this many bytes, also in the middle of a line."""
    previous: bool = False

    @classmethod
    def from_query(cls, query: dict[str, str], now: datetime) -> LogOptions:
        """The options of a request's query.

        Raises:
            ValueError: If a number or a time cannot be read.
        """
        since = datetime.fromisoformat(query["sinceTime"]) if query.get("sinceTime") else None
        if query.get("sinceSeconds"):
            since = now - timedelta(seconds=int(query["sinceSeconds"]))
        if since is not None and since.tzinfo is None:
            raise ValueError("sinceTime has no time zone")
        return cls(
            follow=query.get("follow") in ("true", "1"),
            tail_lines=int(query["tailLines"]) if query.get("tailLines") else None,
            since=since,
            timestamps=query.get("timestamps") in ("true", "1"),
            limit_bytes=int(query["limitBytes"]) if query.get("limitBytes") else None,
            previous=query.get("previous") in ("true", "1"),
        )


def read_log(log: BinaryIO, options: LogOptions, wait_for_more: Callable[[int], bool] | None = None) -> Iterator[bytes]:
    """The requested part of a log, in blocks.

    Args:
        log: The stored log, open for reading.
        options: Options of the request.
        wait_for_more: For `follow`: waits until the log is longer than an offset, and returns whether it
            may still grow. None for a log that is complete.
    """
    blocks = _lines_from(log, start_offset(log, options), wait_for_more if options.follow else None)
    if not options.timestamps:
        blocks = _without_timestamps(blocks)
    return blocks if options.limit_bytes is None else _limited(blocks, options.limit_bytes)


def start_offset(log: BinaryIO, options: LogOptions) -> int:
    """Offset of the requested part: after the lines that are too old or too far from the end."""
    offset = 0
    if options.since is not None:
        offset = offset_of_time(log, options.since)
    if options.tail_lines is not None:
        offset = max(offset, offset_of_tail(log, options.tail_lines))
    return offset


def offset_of_tail(log: BinaryIO, num_lines: int) -> int:
    """Offset of the last `num_lines` lines, found by reading backwards."""
    position = end = log.seek(0, os.SEEK_END)
    missing = num_lines
    if num_lines <= 0:
        return end
    while position > 0:
        size = min(_BLOCK_BYTES, position)
        position -= size
        log.seek(position)
        block = log.read(size)
        search_end = size - 1 if position + size == end else size  # the last line's own end does not count
        while (newline := block.rfind(b"\n", 0, search_end)) >= 0:
            missing -= 1
            if missing == 0:
                return position + newline + 1
            search_end = newline
    return 0


def offset_of_time(log: BinaryIO, since: datetime) -> int:
    """Offset of the first line at or after `since`, found by bisection: times rise through the file."""
    wanted = since.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f").encode()
    low, high = 0, log.seek(0, os.SEEK_END)
    while low < high:
        middle = (low + high) // 2
        start = _line_start_at_or_after(log, middle, high)
        if start >= high:
            high = middle
            continue
        log.seek(start)
        if log.read(TIMESTAMP_LENGTH) >= wanted:
            high = middle
        else:
            low = start + 1
    return _line_start_at_or_after(log, low, log.seek(0, os.SEEK_END))


def _line_start_at_or_after(log: BinaryIO, offset: int, end: int) -> int:
    """The first offset from `offset` on where a line begins; `end` if none does."""
    if offset == 0:
        return 0
    position = offset - 1
    log.seek(position)
    while position < end:
        block = log.read(min(_PROBE_BYTES, end - position))
        if not block:
            break
        newline = block.find(b"\n")
        if newline >= 0:
            return min(position + newline + 1, end)
        position += len(block)
    return end


def _lines_from(log: BinaryIO, offset: int, wait_for_more: Callable[[int], bool] | None) -> Iterator[bytes]:
    log.seek(offset)
    growing = wait_for_more is not None
    while True:
        while block := log.read(_BLOCK_BYTES):
            offset += len(block)
            yield block
        if not growing or wait_for_more is None:
            return
        growing = wait_for_more(offset)  # one more read after the writer has closed


def _without_timestamps(blocks: Iterable[bytes]) -> Iterator[bytes]:
    """The text of the lines. A line may go on over any number of blocks."""
    to_skip = PREFIX_LENGTH
    for block in blocks:
        first, *rest = block.split(b"\n")
        parts = [first[to_skip:]]
        to_skip = max(0, to_skip - len(first))
        if rest:
            parts += [line[PREFIX_LENGTH:] for line in rest]
            to_skip = max(0, PREFIX_LENGTH - len(rest[-1]))
        if text := b"\n".join(parts):
            yield text


def _limited(blocks: Iterable[bytes], limit_bytes: int) -> Iterator[bytes]:
    for block in blocks:
        yield block[:limit_bytes]
        limit_bytes -= len(block)
        if limit_bytes <= 0:
            return
