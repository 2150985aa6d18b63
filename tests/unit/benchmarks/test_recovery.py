"""The parts of a recovery are found in the lines of rank 0."""

from __future__ import annotations

import pytest

from benchmarks.recovery import recovery_parts
from benchmarks.result import BenchmarkFailed

BEFORE = [
    {"event": "imported", "at": 1.0},
    {"event": "loaded", "at": 2.0},
    {"event": "step", "step": 1, "at": 3.0},
    {"event": "step", "step": 2, "at": 4.0},
]


def test_a_repeated_step_is_no_new_one() -> None:
    again = [
        {"event": "imported", "at": 7.0},
        {"event": "loaded", "at": 7.5},
        {"event": "step", "step": 2, "at": 8.0},
        {"event": "step", "step": 3, "at": 9.0},
    ]
    parts = recovery_parts([*BEFORE, *again], killed_at=4.5)
    assert parts == {"until_imported": 2.5, "until_loaded": 0.5, "until_new_step": 1.5, "total": 4.5}


def test_a_program_that_was_not_started_again_is_refused() -> None:
    with pytest.raises(BenchmarkFailed, match="not started again"):
        recovery_parts(BEFORE, killed_at=4.5)
