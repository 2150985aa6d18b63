"""The run record: pure functions from what is known of a run to `run.json`."""

from __future__ import annotations

from trainflow.record.build import build_record, overhead_by_state

__all__ = ["build_record", "overhead_by_state"]
