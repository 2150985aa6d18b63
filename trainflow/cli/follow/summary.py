"""The end of a run in a few lines."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from trainflow.cli.follow.screen import STYLES
from trainflow.cli.terminal import Console
from trainflow.record.restarts_in_words import restarts_in_words
from trainflow.record.run_commands import pasted
from trainflow.record.run_states import state_of_record
from trainflow.record.situation import situation
from trainflow.record.wording import duration, significant, speed_of
from trainflow.workflow.run_record import RunError, RunRecord

LABEL_WIDTH = 15
"""Columns of a fact's name."""


def summarize(record: RunRecord, console: Console, *, report: Path | None = None, words: Sequence[str] = ()) -> None:
    """Prints how a run ended, what came of it, what to do after a failure, and where the report is.

    Args:
        record: The run's record.
        console: Where to print.
        report: The report's file.
        words: Options of a command that name the run's place.
    """
    end = situation(state_of_record(record, ()))
    console.print()
    now = end.kind.value.lower() if record.status.is_over else "goes on"
    console.print(Text(f"Run {now}: {record.run_id}", style=STYLES[end.tone]))
    if record.error is not None:
        _print_facts([("error", record.error.name), ("what happened", record.error.message)], console)
        _print_evidence(record.error, console)
    _print_facts(_facts(record, report, words), console)


def _print_facts(facts: Sequence[tuple[str, str]], console: Console) -> None:
    if not console.is_terminal:  # no width to wrap at
        for label, value in facts:
            console.print(Text(f"{label:<{LABEL_WIDTH}}{value}"), soft_wrap=True)
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim", no_wrap=True, min_width=LABEL_WIDTH - 2)
    table.add_column(overflow="fold")
    for label, value in facts:
        table.add_row(label, Text(value))
    console.print(table)


def _print_evidence(error: RunError, console: Console) -> None:
    """Print the lines of the log that decided, and where they come from."""
    if not error.excerpt:
        return
    console.print(Text(f"{'evidence':<{LABEL_WIDTH}}{error.source or 'last lines'}", style="dim"), soft_wrap=True)
    for line in error.excerpt:
        console.print(Text(f"  {line}"), soft_wrap=True)


def _facts(record: RunRecord, report: Path | None, words: Sequence[str]) -> list[tuple[str, str]]:
    facts: list[tuple[str, str]] = []
    if record.error is not None:
        facts.append(("what to do", pasted(record.error.what_to_do, record.run_id, words)))
    if record.restarts:
        facts.append(("restarts", restarts_in_words(record.restarts, record.avoided_nodes)))
    if record.ended_at is not None:
        took = duration((record.ended_at - record.started_at).total_seconds())
        overhead = record.overhead_seconds
        facts.append(("duration", f"{took} ({duration(overhead)} without a running pod)" if overhead else took))
    if record.training is not None and record.training.steps:
        training = record.training
        facts.append(("steps", f"{training.steps:,}"))
        if training.last_loss is not None:
            facts.append(("loss", f"{significant(training.first_loss)} → {significant(training.last_loss)}"))
        if speed := speed_of(training.sequences_per_second, training.last_metrics, training.throughput_of):
            facts.append(("speed", speed))
    facts += [("warning", warning) for warning in record.warnings]
    if record.compile is not None:
        facts.append(("compile cache", record.compile.cache))
    if record.training is not None and record.training.checkpoint:
        facts.append(("checkpoint", record.training.checkpoint))
    if report is not None:
        facts.append(("report", str(report)))
    return facts
