"""Runs that have ended, from the folders that they left: `<out>/<run id>/run.json`, `steps.json` and `logs/`."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from trainflow.client.files import read_record
from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.record.run_states import state_of_record
from trainflow.record.steps import FILE_NAME as STEPS_FILE
from trainflow.record.steps import kept_steps_from_json
from trainflow.workflow.run_record import RunRecord

RECORD_FILE = "run.json"


class EndedRuns:
    """The records in a folder, each read once while its file stays the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._records: dict[Path, tuple[int, RunRecord | None]] = {}

    def records(self) -> list[RunRecord]:
        """Every record that can be read."""
        found = (self._record(path) for path in self.folder.glob(f"*/{RECORD_FILE}") if not path.parent.is_symlink())
        return [record for record in found if record is not None]

    def snapshot(self, run_id: str) -> RunState | None:
        """The run as it was in the end; None if its record is not in the folder."""
        record = self._record(self.folder / run_id / RECORD_FILE) if is_name(run_id) else None
        if record is None:
            return None
        return state_of_record(record, _steps(self.folder / run_id / STEPS_FILE))

    def log_dir(self, run_id: str) -> Path:
        """The folder with the logs of the run's pods."""
        return self.folder / run_id / "logs"

    def report(self, run_id: str) -> Path:
        """The run's report, which may not be there."""
        return self.folder / run_id / "report.html"

    def _record(self, path: Path) -> RunRecord | None:
        try:
            changed = path.stat().st_mtime_ns
            known = self._records.get(path)
            if known is None or known[0] != changed:
                known = self._records[path] = (changed, _read(path))
            return known[1]
        except OSError:
            return None


def is_name(text: str) -> bool:
    """Whether a text is the name of a file in a folder, and no path."""
    return text not in ("", ".", "..") and "/" not in text and "\\" not in text and "\0" not in text


def _read(path: Path) -> RunRecord | None:
    try:
        return read_record(path)
    except (ValidationError, UnicodeDecodeError):
        return None


def _steps(path: Path) -> tuple[Step, ...]:
    try:
        return kept_steps_from_json(path.read_bytes()).steps
    except OSError:
        return ()
