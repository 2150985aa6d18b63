"""The end of a log, what has been added to it since, and the lines in it that a person searches for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from trainflow.failures.judging import Evidence, judge

MAX_LINES = 10_000
"""Most lines that are sent at once."""

TAIL_BYTES = 2 * 1024 * 1024
"""Most bytes that are sent at once; longer lines than the tail has are cut at its beginning."""

MAX_FOUND = 1000
"""Most lines that a search answers with: the newest ones."""


@dataclass(frozen=True, kw_only=True)
class Tail:
    """Lines of a log, from a place in its file on."""

    lines: list[str]
    offset: int
    """Place behind the last line: where the next part begins."""
    is_whole: bool
    """Whether nothing of the log was left out before these lines."""


@dataclass(frozen=True, kw_only=True)
class Found:
    """Lines of a log that have a text in them."""

    lines: list[tuple[int, str]]
    """The newest ones with their numbers, from 1."""
    total: int


def read_tail(log: Path, *, since: int | None = None) -> Tail:
    """The complete lines at the end of a log, or those behind a place in it; none of a file that is not there yet.

    Args:
        log: The file.
        since: Offset of an earlier tail; None for the end of the log.

    Raises:
        OSError: If the file cannot be read.
    """
    if not log.exists():
        return Tail(lines=[], offset=0, is_whole=True)
    with log.open("rb") as file:
        size = file.seek(0, 2)
        begin = max(0, size - TAIL_BYTES, 0 if since is None or since > size else since)
        file.seek(begin)
        data = file.read(TAIL_BYTES)
    cut = begin not in (0, since)
    if cut:  # amid a line
        data_begin = data.find(b"\n") + 1
        begin, data = begin + data_begin, data[data_begin:]
    whole = data[: data.rfind(b"\n") + 1]
    lines = whole.decode("utf-8", "replace").split("\n")[:-1]
    return Tail(lines=lines[-MAX_LINES:], offset=begin + len(whole), is_whole=not cut and len(lines) <= MAX_LINES)


def first_error(log: Path) -> str:
    """The line of a log by that the failure of its pod is judged; empty without one.

    Raises:
        OSError: If the file cannot be read.
    """
    verdict = judge(Evidence(lines=read_tail(log).lines, exit_code=1))
    return verdict.quotation or (verdict.excerpt.lines[0] if verdict.excerpt.place else "")


def search(log: Path, text: str) -> Found:
    """The lines that have a text in them, in either case; none of a file that is not there yet.

    Raises:
        OSError: If the file cannot be read.
    """
    if not log.exists():
        return Found(lines=[], total=0)
    with log.open("r", encoding="utf-8", errors="replace", newline="\n") as file:
        return found_in(file, text)


def found_in(lines: Iterable[str], text: str) -> Found:
    """See `search`."""
    wanted = text.casefold()
    found = [(place, line.rstrip("\n")) for place, line in enumerate(lines, 1) if wanted in line.casefold()]
    return Found(lines=found[-MAX_FOUND:], total=len(found))
