"""`run.json`, `steps.json` and `report.html` on disk: written whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from trainflow.client.whole_files import write_text
from trainflow.observed.step import Step
from trainflow.record.steps import KeptSteps
from trainflow.report import render_report
from trainflow.workflow.run_record import RunRecord


def write_record(record: RunRecord, path: Path) -> Path:
    """Writes the record (`run.json`), so that a reader never meets half a file.

    Raises:
        OSError: If the file cannot be written.
    """
    return write_text(path, record.model_dump_json(indent=2) + "\n")


def read_record(path: Path) -> RunRecord:
    """The record that `write_record` left."""
    return RunRecord.model_validate_json(path.read_text(encoding="utf-8"))


def write_steps(steps: Sequence[Step], path: Path) -> Path:
    """Write every logged step (`steps.json`) in the form of the workflow's own file, which has some of them.

    Raises:
        OSError: If the file cannot be written.
    """
    return write_text(path, KeptSteps(steps=tuple(steps)).to_json() + "\n")


def write_report(record: RunRecord, steps: Sequence[Step], path: Path, *, words: Sequence[str] = ()) -> Path:
    """Writes the report; it links to the pods' logs in the folder `logs/` beside it.

    Args:
        record: What happened.
        steps: Logged steps in their order, each once.
        path: The report's file, usually `report.html` in the run's folder.
        words: Options of a command that name the run's place.

    Raises:
        OSError: If the file cannot be written.
    """
    logs = [log.name for log in sorted((path.parent / "logs").glob("*.log"))]
    return write_text(path, render_report(record, steps, logs=logs, words=words))
