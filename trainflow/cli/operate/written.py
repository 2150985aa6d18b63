"""The report of a run as a file of this machine."""

# Each command imports what it needs; see trainflow/cli/main.py.

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainflow.client.place import RunReader


def written_report(reader: RunReader, run: str, out: Path) -> Path:
    """The path of a run's report below `out`, where it is written unless it is there; of a run that goes on, what it
    would be now."""
    from trainflow.client.whole_files import write_text

    found = reader.describe(run)
    page = reader.report(found.run_id)
    path = out / found.run_id / "report.html"
    if path.is_file() and path.read_text(encoding="utf-8") == page:
        return path
    return write_text(path if found.ended_at else path.with_name("report-now.html"), page)
