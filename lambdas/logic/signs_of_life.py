"""Signs of life in a log: lines that show that a program goes on, although none of them is a step.

A line is a sign of life if it differs from the newest different lines in more than clocks and measurements. A program
that waits for a lost peer may print for ever, too: a library's heartbeat, with the time, the memory in use and the
number of the attempt. So these are left out of the comparison (docs/decisions/0088-life-without-steps.md).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from datetime import datetime

from trainflow.protocol.stacks import is_stacks_line
from trainflow.protocol.step_report import ALIVE
from trainflow.workflow.log_line import LogLine

NEWEST_LINES = 200
"""Newest lines of a batch that are compared: a verbose log has millions, and one sign is enough."""

REMEMBERED = 32
"""Different lines that are remembered. They travel through the state machine as checksums with every poll; a monitor
that prints in turn has fewer."""

JUDGED_LINES = 10
"""Newest lines of another pod's log. One of them has to differ from those before it."""

LONGEST_LINE = 1000
"""Characters of a line that are compared."""

_NUMBER = r"\d+(?:[.,]\d+)*"
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_FRAME = re.compile(r'^\s*(?:\[\w+\]:)?\s*(?:File ".*", line \d+|(?:Current )?[Tt]hread 0x|frame #\d+)')
"""Lines of a stack: a program that hangs may dump its threads again and again (faulthandler.dump_traceback_later)."""

_CLOCK = re.compile(
    r"0x[0-9a-f]+"
    r"|\d{4}[-/]\d{1,2}[-/]\d{1,2}"
    r"|\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)\w{0,6}[ ]{1,2}\d{1,2}\b"
    r"|\d{1,3}:\d\d(?::\d\d)?(?:[.,]\d+)?"  # a time of day, or the time that a bar shows
    r"|\b[ewif]\d{4}\b"  # glog's severity and date
    r"|\b1[5-9]\d{8}(?:\d{3}){0,3}(?:\.\d+)?\b"  # seconds, or smaller units, since 1970
    rf"|{_NUMBER}(?: ?[nuµm]?s| ?secs?| ?seconds?| ?milliseconds?|m| ?mins?| ?minutes?|h| ?hrs?| ?hours?|d| ?days?)\b"
    rf"|{_NUMBER} ?(?:[kmgt]i?b|bytes|°c|c|w|mhz|ghz)\b"
    rf"|{_NUMBER} ?\w{{0,10}}/s(?:ec)?\b|{_NUMBER} ?s/\w{{1,10}}\b"
)
"""Clocks, durations, rates and measurements of the machine, in lower case: they change also while a program hangs."""

_WAITING = re.compile(
    r"wait|retr(?:y|ies)|attempt|heart ?-?beat|keep-?alive|\bstill\b|watchdog|\bping|\balive\b|\bidle\b|stuck"
    r"|\bh[au]ngs?\b|unresponsive|no progress|time[ds]?[ -]?out"
)
_WORK = re.compile(rf"((?:loss|step|iter|iteration|epoch|batch|sample|token)\w{{0,8}})[^\w\r\n]{{0,3}}(-?{_NUMBER})")
"""A word for work with its number. In a line about waiting only these numbers count: others count the waiting."""


class RecentLines:
    """The newest different lines since the last step.

    Args:
        known: Checksums of the lines that earlier polls have read, the oldest first.
    """

    def __init__(self, known: Iterable[int] = ()) -> None:
        self._known = dict.fromkeys(known)

    @property
    def known(self) -> tuple[int, ...]:
        """Checksums of the remembered lines, the oldest first."""
        return tuple(self._known)

    def add(self, text: str) -> bool:
        """Remember a line; whether it is a sign of life."""
        if f'{{"{ALIVE}":' in text:
            return True  # files have changed
        if is_stacks_line(text):
            return False  # the supervisor prints them, also when a rank moves again
        content = compared(text)
        if content is None:
            return False
        checksum = zlib.crc32(content.encode(errors="replace"))
        is_new = checksum not in self._known
        self._known.pop(checksum, None)
        self._known[checksum] = None
        while len(self._known) > REMEMBERED:
            del self._known[next(iter(self._known))]
        return is_new


def shows_life(lines: Sequence[LogLine], *, since: datetime) -> bool:
    """Whether the last lines of a log are a sign of life.

    Args:
        lines: The end of the log. Only its newest lines are judged, by those before them.
        since: Only younger lines count.
    """
    recent = RecentLines()
    signs = [recent.add(line.text) and line.logged_at > since for line in lines]
    return any(signs[-JUDGED_LINES:])


def compared(text: str) -> str | None:
    """The part of a line that is compared with others; None for a line that never is a sign of life."""
    shown = _COLOUR.sub("", text.rstrip("\r\n").rpartition("\r")[2][:LONGEST_LINE])
    if not shown.strip() or _FRAME.match(shown):
        return None
    masked = _CLOCK.sub("#", shown.lower())
    if _WAITING.search(masked) is None:
        return masked
    work = " ".join(f"{word}={number}" for word, number in _WORK.findall(masked))
    return f"{re.sub(_NUMBER, '#', masked)} {work}"
