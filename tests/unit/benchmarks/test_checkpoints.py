"""The benchmark of checkpoints in a node's memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import checkpoints
from benchmarks.registry import BENCHMARKS
from benchmarks.result import BenchmarkFailed


def test_both_folders_are_measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(checkpoints, "WIDTH", 20)
    monkeypatch.setattr(checkpoints, "IN_MEMORY", tmp_path)
    result = BENCHMARKS["checkpoints"]()
    assert set(result.seconds) == {"write to node", "load from node", "write to shared", "load from shared"}
    assert result.details["goal"] == {"at most": 2.0, "reached": True}
    assert list(tmp_path.iterdir()) == []


def test_a_machine_without_a_file_system_in_memory_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(checkpoints, "IN_MEMORY", tmp_path / "missing")
    with pytest.raises(BenchmarkFailed, match="missing does not exist"):
        checkpoints.run()
