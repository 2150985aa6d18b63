"""What a program said last, without what torchrun says about it afterwards."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainflow.protocol.metrics_line import parse_metrics_line
from trainflow.protocol.staging_line import parse_staging_line
from trainflow.protocol.step_report import parse_report_line

_REPORT = re.compile(
    r"torch/distributed/elastic/.*failed \(exitcode: |^W\d{4} .*torch/distributed/elastic/.*Sending process "
)
"""torchrun's report begins so: some forty lines of its own traceback that bury the program's."""


def program_lines(lines: Iterable[str]) -> list[str]:
    """The lines up to torchrun's report."""
    own: list[str] = []
    for line in lines:
        if _REPORT.search(line):
            break
        own.append(line)
    return own


def last_words(lines: Iterable[str]) -> str:
    """The last line that says something: of a Python traceback, the error; nothing, if it told of progress."""
    spoken = [line.strip() for line in program_lines(lines) if line.strip()]
    return spoken[-1] if spoken and not _tells_of_progress(spoken[-1]) else ""


def _tells_of_progress(line: str) -> bool:
    return any(parse(line) is not None for parse in (parse_metrics_line, parse_report_line, parse_staging_line))
