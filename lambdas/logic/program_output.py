"""The end of a program's output, without torchrun's report behind it."""

from __future__ import annotations

from collections.abc import Iterable

from trainflow.failures.blocks import complete_lines
from trainflow.failures.log_lines import is_progress
from trainflow.failures.noise import without_noise
from trainflow.protocol.checkpoint_line import CHECKPOINT, OPENING, RESUMED
from trainflow.protocol.ended_ranks import LINE
from trainflow.protocol.staging_line import parse_staging_line
from trainflow.protocol.step_report import is_relayed


def program_lines(lines: Iterable[str]) -> list[str]:
    """The program's own lines, without those of launchers."""
    return without_noise(list(lines))


def last_line(lines: Iterable[str]) -> str:
    """The last line that is not blank: the error of a Python traceback. Empty if that line only reports progress.

    A bar returns the carriage, and shares its line with what follows.
    """
    shown = [part.strip() for line in complete_lines(program_lines(lines)) for part in line.split("\r")]
    printed = [line for line in shown if line and line != LINE and not is_relayed(line)]
    return printed[-1] if printed and not _reports_progress(printed[-1]) else ""


def _reports_progress(line: str) -> bool:
    names_checkpoint = any(f'{{"{name}":' in line for name in (CHECKPOINT, OPENING, RESUMED))
    return names_checkpoint or is_progress(line) or parse_staging_line(line) is not None
