"""`trainflow compare` for people: the runs as columns, as lines, or as blocks, by what the terminal has room for."""

from __future__ import annotations

import os
import sys
import textwrap
from collections.abc import Sequence

from trainflow.cli.operate.shown import table

SIDE_BY_SIDE = 2
"""Most runs that are columns; more of them are easier to read one below the other."""

RUN = "RUN"


def terminal_width() -> int | None:
    """Columns of the terminal that is written to; None for a file or a pipe, whose lines have any length."""
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns if sys.stdout.isatty() else None
    except OSError:
        return None


def comparison_text(run_ids: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], width: int | None) -> str:
    """The comparison in lines that are no longer than the terminal is wide.

    Args:
        run_ids: The runs.
        rows: Facts with a value for each run.
        width: Columns of the terminal; None for lines of any length.
    """
    if len(run_ids) <= SIDE_BY_SIDE:
        text = table(("", *run_ids), [(name, *values) for name, values in rows])
        if _fits(text, width):
            return text
    tables = _tables(run_ids, rows, width)
    if all(_fits(text, width) for text in tables):
        return "\n\n".join(tables)
    return "\n\n".join(_block(run_id, index, rows, width or 0) for index, run_id in enumerate(run_ids))


def _fits(text: str, width: int | None) -> bool:
    return width is None or all(len(line) <= width for line in text.splitlines())


def _tables(run_ids: Sequence[str], rows: Sequence[tuple[str, Sequence[str]]], width: int | None) -> list[str]:
    """A run a line, with facts as columns: in as many tables as it takes until all facts have room."""
    tables: list[list[tuple[str, Sequence[str]]]] = [[]]
    for row in rows:
        if tables[-1] and not _fits(_comparison_table(run_ids, [*tables[-1], row]), width):
            tables.append([])
        tables[-1].append(row)
    return [_comparison_table(run_ids, facts) for facts in tables]


def _comparison_table(run_ids: Sequence[str], facts: Sequence[tuple[str, Sequence[str]]]) -> str:
    lines = [(run_id, *(values[index] for _, values in facts)) for index, run_id in enumerate(run_ids)]
    return table((RUN, *(name for name, _ in facts)), lines)


def _block(run_id: str, index: int, rows: Sequence[tuple[str, Sequence[str]]], width: int) -> str:
    """A run with its facts below it, each on lines of its own. The id is not broken, so that it can be copied."""
    said = [f"{name}: {values[index]}" for name, values in rows if values[index]]
    wrapper = textwrap.TextWrapper(max(width, 10), initial_indent="  ", subsequent_indent="    ")
    return "\n".join([run_id, *(wrapper.fill(fact) for fact in said)])
