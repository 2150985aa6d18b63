"""Streams cut into lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

LONGEST_LINE_BYTES = 64 * 1024
"""Maximum length of a line in a function, since a program may write one without an end."""

LONGEST_OBJECT_BYTES = 8 * 1024 * 1024
"""Maximum length of a line elsewhere. A line of a watch is an object; etcd stores at most 1.5 MiB of one."""


def split_lines(chunks: Iterable[bytes], *, longest: int = LONGEST_OBJECT_BYTES) -> Iterator[bytes]:
    """Lines with their line feed; only the very last may lack it.

    Only a line feed ends a line: progress bars write carriage returns.

    Args:
        chunks: The stream, cut anywhere.
        longest: Bytes that are kept of a line; the others are dropped as they come.
    """
    line = bytearray()
    for chunk in chunks:
        for number, piece in enumerate(chunk.split(b"\n")):
            if number > 0:
                yield bytes(line) + b"\n"
                line.clear()
            line += piece[: longest - len(line)]
    if line:
        yield bytes(line)


def complete_lines(chunks: Iterable[bytes], *, longest: int = LONGEST_LINE_BYTES) -> Iterator[bytes]:
    """Lines without their ends; of a long one its beginning. A last one without an end is still being written."""
    for line in split_lines(chunks, longest=longest):
        if line.endswith(b"\n"):
            yield line[:-1]
