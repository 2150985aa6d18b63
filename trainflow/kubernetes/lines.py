"""Streams cut into lines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

LONGEST_LINE_BYTES = 64 * 1024
"""What a function keeps of a line: a program may write one without an end."""


def lines_of(chunks: Iterable[bytes], *, longest: int | None = None) -> Iterator[bytes]:
    """Lines with their line feed; only the very last may lack it.

    Only a line feed ends a line: progress bars write carriage returns.

    Args:
        chunks: The stream, cut anywhere.
        longest: Bytes that are kept of a line; None for all.
    """
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line[:longest] + b"\n"
        rest = rest[:longest]
    if rest:
        yield rest


def complete_lines(chunks: Iterable[bytes], *, longest: int = LONGEST_LINE_BYTES) -> Iterator[bytes]:
    """Lines without their ends; of a long one its beginning. A last one without an end is still being written."""
    for line in lines_of(chunks, longest=longest):
        if line.endswith(b"\n"):
            yield line[:-1]
