"""The run record: pure functions that make `run.json` from the observations of a run."""

from __future__ import annotations

from trainflow.record.build import build_record, overhead_by_state

__all__ = ["build_record", "overhead_by_state"]
