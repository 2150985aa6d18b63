"""The end of a program's output, without torchrun's report behind it."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainflow.protocol.metrics_line import parse_metrics_line
from trainflow.protocol.staging_line import parse_staging_line
from trainflow.protocol.step_report import parse_report_line

_REPORT = re.compile(
    r"torch/distributed/elastic/.*failed \(exitcode: |^W\d{4} .*torch/distributed/elastic/.*Sending process "
)
"""Beginning of torchrun's report: some forty lines of its own traceback behind the program's."""


def program_lines(lines: Iterable[str]) -> list[str]:
    """The lines up to torchrun's report."""
    own: list[str] = []
    for line in lines:
        if _REPORT.search(line):
            break
        own.append(line)
    return own


def last_line(lines: Iterable[str]) -> str:
    """The last line that is not blank: the error of a Python traceback. Empty if that line only reports progress."""
    printed = [line.strip() for line in program_lines(lines) if line.strip()]
    return printed[-1] if printed and not _reports_progress(printed[-1]) else ""


def _reports_progress(line: str) -> bool:
    return any(parse(line) is not None for parse in (parse_metrics_line, parse_report_line, parse_staging_line))
