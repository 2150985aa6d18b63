"""Tracebacks in the lines of one process, each with the exceptions that it is chained with."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from trainflow.failures.frames import frame, is_native_frame
from trainflow.failures.log_lines import RANK_PREFIX, RECORD, is_progress

HEADING = re.compile(r"Traceback \(most recent call last\)|\(most recent call first\):$|^╭─+ ?Traceback")
"""First line of a traceback, also of one that a logger or Rich prints, and of the stacks of faulthandler."""

LINK = re.compile(
    r"^During handling of the above exception|^The above exception was the direct cause|^Caused by: "
    r"|^-- Process \d{1,6} terminated with|^\s*\+[-+]+(?: (?:\d{1,4}|\.{3}) -+)?$"
)
"""Lines between the parts of a chain, and around the members of a group of exceptions."""

_MEMBER = re.compile(r"^\s*\+[-+]+ \d{1,4} -+$")
"""Line before a member of a group of exceptions."""

_ARROW = re.compile(r"^-{2,8}> \d{1,6} ")
"""The line of code of a call in IPython's traceback."""

_INDENTED = (" ", "\t", "│", "╰", "╭")

MAX_MESSAGE_LINES = 8
"""Lines of an exception's message that are shown."""

_CONTINUES = re.compile(r"^\s*(?:what\(\):|Caused by: |\.\.\. \d+ more|note: |stack backtrace:|goroutine \d|\[signal )")
"""Lines below the first one of a program that ends without a traceback."""

_CAUSED = re.compile(r"^Caused by: ")
_MORE = re.compile(r"^\s+(?:\.\.\. \d+ more|at )")

MAX_STACK = 60
"""Lines below one outside of tracebacks that may belong to it."""

MAX_BEFORE = 2
"""Lines before a line outside of tracebacks: the usage of a command, for example."""


@dataclass
class Block:
    """Lines that belong together, in the parts of a chain."""

    begin: int
    """Place of its first line."""
    parts: list[list[str]] = field(default_factory=list)
    at: int = 0
    """Place of the line that decided."""

    @property
    def end(self) -> int:
        """Place behind its last line."""
        return self.begin + sum(map(len, self.parts))

    def __contains__(self, at: int) -> bool:
        """Whether a line is one of them. It is remembered as the line that decided."""
        self.at = at
        return self.begin <= at < self.end

    @property
    def deciding(self) -> list[str]:
        """The part with the line that decided; of a group of exceptions, that of its first member."""
        end, later = self.begin, iter(self.parts)
        for part in later:
            end += len(part)
            if self.at < end:
                following = next(later, [""])
                return following if any(map(_MEMBER.match, following[:3])) else part
        return self.parts[-1]


def blocks(texts: Sequence[str]) -> Iterator[Block]:
    """The tracebacks among the lines of one process, in their order."""
    at = 0
    while at < len(texts):
        if not HEADING.search(texts[at]):
            at += 1
            continue
        block = Block(begin=at)
        end = _part_end(texts, at)
        while end > at:
            block.parts.append(list(texts[at:end]))
            at, end = end, _part_end(texts, end, is_linked=True)
        yield block


def complete_lines(texts: Sequence[str]) -> Sequence[str]:
    """The lines without a last traceback that lacks its exception: the process was killed while it printed it.

    The exception before such a traceback is then the newest one that is known, and not one that the program handled.
    """
    end, is_begun = len(texts), False
    while end:
        text = RANK_PREFIX.sub("", texts[end - 1], count=1)
        is_head = LINK.search(text) is not None or HEADING.search(text) is not None
        if not is_head and not _is_of_stack(text):
            break
        is_begun = is_begun or is_head
        end -= 1
    return texts[:end] if is_begun else texts


def _part_end(texts: Sequence[str], begin: int, *, is_linked: bool = False) -> int:
    """Place behind a part of a chain; the given place if no part begins there.

    The first part begins with a heading, the others with lines that link them with the part before.
    """
    at = begin
    while at < len(texts) and at < begin + 4 and (not texts[at].strip() or LINK.search(texts[at])):
        at += 1
    if at >= len(texts) or not HEADING.search(texts[at]) or is_linked is not any(map(LINK.search, texts[begin:at])):
        return begin
    at += 1
    while at < len(texts) and _is_of_stack(texts[at]):
        at += 1
    return _message_end(texts, at)


def _is_of_stack(text: str) -> bool:
    return not text.strip() or text.startswith(_INDENTED) or frame(text) is not None or _ARROW.match(text) is not None


def _message_end(texts: Sequence[str], begin: int) -> int:
    """Place behind the message of an exception. The original traceback of a worker process belongs to it."""
    at, room = begin, MAX_MESSAGE_LINES
    while at < len(texts) and room:
        text = texts[at]
        if text.startswith("Original Traceback") and (end := _part_end(texts, at)) > at:
            return end
        ends = not text.strip() or LINK.search(text) or HEADING.search(text) or is_progress(text)
        if ends or (at > begin and RECORD.match(text) and not is_native_frame(text)):
            break
        at += 1
        room -= not is_native_frame(text)
    return at


def paragraph(texts: Sequence[str], at: int) -> Block:
    """A line outside of tracebacks, with the lines before and behind it that belong to it."""
    begin = at
    while begin > 0 and _CAUSED.match(texts[begin]) and _is_stack(texts[begin - 1]):  # Java names the cause last
        begin = _stack_begin(texts, begin - 1)
    bottom = begin
    while begin > 0 and bottom - begin < MAX_BEFORE and texts[begin - 1].strip() and not is_progress(texts[begin - 1]):
        begin -= 1
    end = at + 1
    while end < len(texts) and end < at + MAX_STACK and _continues(texts[end], texts[end - 1]):
        end += 1
    cuts = [begin, *(i for i in range(bottom + 1, end) if _CAUSED.match(texts[i])), end]
    return Block(begin=begin, parts=[list(texts[i:j]) for i, j in pairwise(cuts)], at=at)


def _stack_begin(texts: Sequence[str], at: int) -> int:
    """Place of the exception above a stack of Java."""
    while at > 0 and _is_stack(texts[at]):
        at -= 1
    return at


def _is_stack(text: str) -> bool:
    return frame(text) is not None or is_native_frame(text) or _MORE.match(text) is not None


def _continues(text: str, before: str) -> bool:
    if not text.strip():
        return False
    is_stack = _is_stack(text) or HEADING.search(text) is not None
    return is_stack or text.startswith(("  ", "\t")) or _CONTINUES.match(text) is not None or before.endswith(":")
