"""The report of a run (`report.html`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cli.record.files import write_text
from cli.report.page import render_report
from lambdas.models.metrics_line import StepMetrics
from lambdas.models.run_record import RunRecord

__all__ = ["render_report", "write_report"]


def write_report(record: RunRecord, steps: Sequence[StepMetrics], path: Path) -> Path:
    """Writes the report; it links to the pods' logs in the folder `logs/` beside it.

    Args:
        record: What happened.
        steps: Logged steps in their order, each once.
        path: The report's file, usually `report.html` in the run's folder.

    Raises:
        OSError: If the file cannot be written.
    """
    logs = [log.name for log in sorted((path.parent / "logs").glob("*.log"))]
    return write_text(path, render_report(record, steps, logs=logs))
