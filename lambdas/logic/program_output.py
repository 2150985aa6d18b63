"""The end of a program's output, without torchrun's report behind it."""

from __future__ import annotations

from collections.abc import Iterable

from trainflow.protocol.checkpoint_line import CHECKPOINT
from trainflow.protocol.metrics_line import metrics_figures
from trainflow.protocol.staging_line import parse_staging_line
from trainflow.protocol.step_report import is_relayed, report_figures
from trainflow.record.last_lines import REPORT


def program_lines(lines: Iterable[str]) -> list[str]:
    """The lines up to torchrun's report."""
    own: list[str] = []
    for line in lines:
        if REPORT.search(line):
            break
        own.append(line)
    return own


def last_line(lines: Iterable[str]) -> str:
    """The last line that is not blank: the error of a Python traceback. Empty if that line only reports progress."""
    printed = [line.strip() for line in program_lines(lines) if line.strip() and not is_relayed(line)]
    return printed[-1] if printed and not _reports_progress(printed[-1]) else ""


def _reports_progress(line: str) -> bool:
    parsers = (metrics_figures, report_figures, parse_staging_line)
    return f'{{"{CHECKPOINT}":' in line or any(parse(line) is not None for parse in parsers)
