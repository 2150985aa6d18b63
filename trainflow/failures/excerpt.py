"""The lines of a failed pod's log that a person has to see: the traceback around the line that decided.

The judge chooses the line, and every surface shows this excerpt of it
(docs/decisions/0096-the-excerpt-that-decided.md). Pure and total: any text is accepted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from trainflow.failures.blocks import HEADING, LINK, Block, blocks, paragraph
from trainflow.failures.frames import frame, innermost, is_native_frame
from trainflow.failures.log_lines import RANK_PREFIX, single_lines
from trainflow.failures.noise import without_noise

MAX_LINES = 20
"""Lines of an excerpt: a traceback of a dozen calls, without those of libraries."""

MAX_LINE_LENGTH = 240
"""Characters of a line of an excerpt."""

MAX_CHARACTERS = 2400
"""Characters of an excerpt as JSON. It crosses Step Functions in the text of an error, which may have 32,768
characters. The parent of a failed child execution quotes that text three times over: a quotation mark has eight
characters there."""

LAST_LINES = 5
"""Lines of a log without a line that decided."""

NEAR = 3
"""Lines between one that decided and the traceback that followed from it: an assertion on a device, for example."""

_RANK = re.compile(r"\[rank(\d{1,6})\]|\[\d{1,6},(\d{1,6})\]|\[(\d{1,6})\]<std|^\s{0,4}(\d{1,6}): ")
"""Prefixes with the number of a rank in the gang: of PyTorch, mpirun, Horovod and srun. `[default0]` is a rank of the
node."""

_TIME = re.compile(r"^[^\[(]{8,40}(?=\[)")
"""Time before the number of a rank."""

_REPORTED_RANK = re.compile(r"^\s{0,4}rank {1,8}: (\d{1,6}) \(local_rank")
_REPORTED_CODE = re.compile(r"^\s{0,4}exitcode {1,8}: (-?\d{1,5})\b")
_ENDED_BY_TORCHRUN = "-15"

_CRASH = re.compile(
    r"^(?:Fatal Python error: |terminate called |thread '.{0,200}' .{0,20}panicked at |panic: |fatal error: "
    r"|Exception in thread |\*\*\* (?!STEP|JOB|End of)\S|malloc\(\): |free\(\): |double free |corrupted "
    r"|\S{1,80}: error: |\[\S{1,80}\] Caught signal |.{0,200}: symbol lookup error: "
    r"|.{0,200}: error while loading shared libraries: |.{0,200}: command not found$)"
)
"""First line of a program that ends without an exception of Python."""

_FATAL, _CRASHED_THREAD = "Fatal Python error", "Current thread"
"""Beginnings of the report of Python's faulthandler, and of the one stack in it that matters."""

_LAST_CALL_FIRST = "(most recent call first)"
_CARETS = re.compile(r"^\s*[\^~]+\s*$")


@dataclass(frozen=True)
class Excerpt:
    """Some lines of one log, as a person reads them."""

    lines: tuple[str, ...] = ()
    place: str = ""
    """File and line of the program's own innermost call: `fit.py:36`; empty if no line names one."""
    rank: int | None = None
    """The rank that printed the lines, where the log says so."""


@dataclass(frozen=True)
class _Line:
    prefix: str
    text: str


def excerpt(texts: Sequence[str], quotation: str = "") -> Excerpt:
    """The lines around the line that decided, without those of libraries and launchers.

    Args:
        texts: Last lines of a pod's log.
        quotation: The line that decided, as the verdict quotes it; empty if no line did.
    """
    whole = list(single_lines(texts))
    rank = _only_failed_rank(whole)
    lines = [_parted(text) for text in without_noise(whole)]
    at = _anchor(lines, quotation, rank)
    if at is None:
        last = [line.prefix + line.text for line in lines if line.text.strip()]
        return Excerpt(lines=_bounded(last[-LAST_LINES:]))
    prefix = lines[at].prefix
    stream = [(place, line.text) for place, line in enumerate(lines) if _source(line.prefix) == _source(prefix)]
    block = _block([text for _, text in stream], next(i for i, (place, _) in enumerate(stream) if place == at))
    return Excerpt(lines=_bounded(_shown(block)), place=_place(block), rank=_printed_rank(prefix, rank))


def _parted(text: str) -> _Line:
    bare = RANK_PREFIX.sub("", text, count=1)
    return _Line(text[: len(text) - len(bare)], bare.rstrip())


def _anchor(lines: Sequence[_Line], quotation: str, rank: int | None) -> int | None:
    """Place of the line that decided: of the rank that failed first, if its lines have its number."""
    wanted = quotation.strip()
    found = [at for at, line in enumerate(lines) if wanted and line.text.strip().startswith(wanted)]
    if not found and wanted:  # the verdict quotes a line without the prefix of a logger
        found = [at for at, line in enumerate(lines) if wanted in line.text]
    if not found and not wanted:
        found = [at for at, line in enumerate(lines) if _CRASH.match(line.text.strip())]
    of_rank = [at for at in found if rank is not None and _printed_rank(lines[at].prefix, None) == rank]
    return next(iter(of_rank or found), None)


def _printed_rank(prefix: str, otherwise: int | None) -> int | None:
    found = _RANK.search(prefix)
    return otherwise if found is None else int(next(number for number in found.groups() if number is not None))


def _source(prefix: str) -> str:
    """The process that printed a line, by its prefix."""
    return _TIME.sub("", prefix).strip()


def _only_failed_rank(texts: Sequence[str]) -> int | None:
    """The rank that torchrun reports as failed, if it reports one and has ended the others itself."""
    ranks, newest = set(), ""
    for text in texts:
        if found := _REPORTED_RANK.match(text):
            newest = found[1]
        elif (found := _REPORTED_CODE.match(text)) and newest and found[1] != _ENDED_BY_TORCHRUN:
            ranks.add(int(newest))
    return ranks.pop() if len(ranks) == 1 else None


def _block(texts: Sequence[str], at: int) -> Block:
    """The traceback with a line; for a line outside of tracebacks, the lines that belong to it."""
    found = list(blocks(texts))
    block = next((block for block in found if at in block), None)
    if block is not None:
        return block
    block = paragraph(texts, at)
    below = [later for later in found if later.begin > at]
    if texts[at].startswith(_FATAL):
        crashed = next((later for later in below if texts[later.begin].startswith(_CRASHED_THREAD)), None)
        block.parts = [list(texts[at : at + 1]), *(crashed.parts[:1] if crashed is not None else [])]
    elif below and below[0].begin <= at + NEAR:
        block.parts = [list(texts[block.begin : below[0].begin]), *below[0].parts]
    return block


def _place(block: Block) -> str:
    """The innermost own call of the part with the line that decided, else of the parts before it."""
    for part in (block.deciding, *reversed(block.parts)):
        frames = [found for text in part if (found := frame(text)) is not None]
        first = any(_LAST_CALL_FIRST in text for text in part)
        if (own := innermost(frames, last_call_first=first or _is_java(part))) is not None:
            return own.place
    return ""


def _is_java(part: Sequence[str]) -> bool:
    return any(text.startswith(("\tat ", "    at ", "        at ")) for text in part)


def _shown(block: Block) -> list[str]:
    whole = [line for part in block.parts for line in _folded(part)]
    if len(whole) <= MAX_LINES:
        return whole
    short: list[str] = []
    for part in block.parts:
        short += _folded(part) if part is block.deciding else _ends(part)
    return short


def _ends(part: Sequence[str]) -> list[str]:
    """The exception of a part of a chain, and what links it with the next."""
    kept = [text for text in part if text.strip() and not text.startswith((" ", "\t")) and not HEADING.search(text)]
    return [*kept[:1], *(text for text in kept[1:] if LINK.search(text))]


@dataclass
class _Folding:
    """Lines, with each run of calls of libraries as one line."""

    lines: list[str] = field(default_factory=list)
    hidden: list[tuple[str, list[str]]] = field(default_factory=list)
    """Calls of libraries in a row: the library, and the lines of the call."""
    is_hidden: bool = False

    def add(self, text: str) -> None:
        if _CARETS.match(text) or not text.strip() or _is_of_box(text):
            return
        text = text.rstrip(" │") if text.startswith(("│", "╭")) else text
        call = "C++" if is_native_frame(text) else (named.library if (named := frame(text)) is not None else None)
        if call:
            self.hidden.append((call, [text]))
            self.is_hidden = True
        elif call is None and self.is_hidden and text.startswith((" ", "\t", "│")):
            self.hidden[-1][1].append(text)  # the line of code of the call
        else:
            self.close()
            self.lines.append(text)

    def close(self) -> None:
        self.is_hidden = False
        hidden, self.hidden = self.hidden, []
        if len(hidden) == 1 and hidden[0][0] != "C++":
            self.lines += hidden[0][1]
        elif hidden:
            names = ", ".join(dict.fromkeys(name for name, _ in hidden))
            calls = "call" if len(hidden) == 1 else "calls"
            self.lines.append(f"  … {len(hidden)} {calls} of {names}")


def _is_of_box(text: str) -> bool:
    """Whether a line of Rich's traceback is neither a call nor the line of code that it is at."""
    return text.startswith(("│", "╰")) and frame(text) is None and "❱" not in text


def _folded(part: Sequence[str]) -> list[str]:
    folding = _Folding()
    for text in part:
        folding.add(text)
    folding.close()
    return folding.lines


def _bounded(lines: Sequence[str]) -> tuple[str, ...]:
    """The first and the last of the lines, as many as an error has room for: the exception is at the end."""
    cut = [line if len(line) <= MAX_LINE_LENGTH else f"{line[: MAX_LINE_LENGTH - 1]}…" for line in lines]
    if len(cut) <= MAX_LINES and _cost(cut) <= MAX_CHARACTERS:
        return tuple(cut)
    head, tail = cut[:2], cut[2:]
    while tail and (len(tail) > MAX_LINES - 3 or _cost([*head, *tail]) > MAX_CHARACTERS - MAX_LINE_LENGTH):
        tail = tail[1:]
    num_left_out = len(cut) - len(head) - len(tail)
    return (*head, f"  … {num_left_out} {'line' if num_left_out == 1 else 'lines'}", *tail)


def _cost(lines: Sequence[str]) -> int:
    return sum(len(json.dumps(line)) for line in lines)
