"""The run record: pure functions from what was observed to `run.json`."""

from __future__ import annotations

from cli.record.build import build_record, overhead_by_state
from cli.record.files import read_record, write_record

__all__ = ["build_record", "overhead_by_state", "read_record", "write_record"]
