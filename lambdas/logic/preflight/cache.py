"""Check whether another run compiles the same graphs at the moment."""

from __future__ import annotations

from collections.abc import Iterator

from lambdas.logic.preflight.findings import Finding, Note
from trainflow.workflow.compile_cache import CacheRecord, CacheState


def compilation_findings(record: CacheRecord | None) -> Iterator[Finding]:
    """A note about another run's compilation: this run waits for it before it requests nodes."""
    if record is not None and record.state is CacheState.COMPILING:
        yield Note(
            f"precompile: the run {record.run_id} compiles the same graphs since {record.since:%Y-%m-%d %H:%M} UTC; "
            "this run will wait for them."
        )
