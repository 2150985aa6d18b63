"""Read what faulthandler has written about a process."""

from __future__ import annotations

import linecache
import re
from collections.abc import Sequence
from pathlib import Path

from trainflow.protocol.stacks import MAX_TEXT, Frame

_MAIN = re.compile(r"^main (0x[0-9a-f]+)$", re.MULTILINE)
_THREAD = re.compile(r"^(?:Current thread|Thread) (0x[0-9a-f]+)")
_FRAME = re.compile(r'^  File "(.*)", line (\d{1,9}) in (.*)$')
_LIBRARY = re.compile(r"^.*?/((?:site|dist)-packages/|python3\.\d+/(?!(?:site|dist)-packages/))")

Dump = dict[str, list[tuple[str, int, str]]]
"""File, line and function of each call, by thread; the innermost call first."""


def main_thread(text: str) -> str | None:
    """Number of the main thread, as the process wrote it at its start."""
    found = _MAIN.search(text)
    return found[1] if found else None


def read_dump(text: str) -> Dump:
    """The stacks of one dump by thread."""
    threads: Dump = {}
    frames: list[tuple[str, int, str]] = []
    for line in text.splitlines():
        if thread := _THREAD.match(line):
            frames = threads.setdefault(thread[1], [])
        elif frame := _FRAME.match(line):
            frames.append((frame[1], int(frame[2]), frame[3]))
    return threads


def is_library(file: str) -> bool:
    """Whether a file belongs to a library or to Python, and not to the program."""
    return file.startswith("<frozen") or _LIBRARY.match(file) is not None


def shown_stacks(dump: Dump, main: str | None, *, folder: Path) -> tuple[tuple[Frame, ...], ...]:
    """The main thread's stack, and those of other threads that are in the program.

    Args:
        dump: The stacks.
        main: Number of the main thread; None for the last one of the dump, which is the oldest.
        folder: Working folder of the program.
    """
    first = main if main in dump else next(reversed(dump), None)
    if first is None:
        return ()
    others = (stack for thread, stack in dump.items() if thread != first)
    in_program = [stack for stack in others if any(not is_library(file) for file, _, _ in stack)]
    return tuple(_frames(stack, folder) for stack in (dump[first], *in_program))


def _frames(stack: Sequence[tuple[str, int, str]], folder: Path) -> tuple[Frame, ...]:
    return tuple(
        Frame(file=_shown(file, folder), line=line, function=function, text=_source(file, line))
        for file, line, function in stack
    )


def _source(file: str, line: int) -> str:
    """The text of a source line of the program; libraries are known by their functions."""
    return "" if is_library(file) else linecache.getline(file, line).strip()[:MAX_TEXT]


def _shown(file: str, folder: Path) -> str:
    if library := _LIBRARY.match(file):
        return file[library.start(1) :]
    return str(Path(file).relative_to(folder)) if Path(file).is_relative_to(folder) else file
