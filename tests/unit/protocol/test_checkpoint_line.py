"""The line about a checkpoint, as programs write it and the workflow reads it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol import report
from trainflow.protocol.checkpoint_line import (
    CheckpointReport,
    checkpoint_line,
    parse_checkpoint_line,
    parse_resumed_line,
    resumed_line,
)

NOW = datetime(2026, 11, 21, 9, 0, tzinfo=UTC)


@given(st.integers(0, 10**12), st.none() | st.integers(0, 10**15), st.sampled_from(["", "[0]:", "loss=2.1  "]))
def test_a_checkpoint_comes_back_from_its_line(step: int, num_bytes: int | None, prefix: str) -> None:
    line = prefix + checkpoint_line(step, num_bytes=num_bytes)
    assert parse_checkpoint_line(line, NOW) == CheckpointReport(step=step, num_bytes=num_bytes, saved_at=NOW)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "Saved a checkpoint.",
        '{"trainflow_checkpoint": {}}',
        '{"trainflow_checkpoint": 7}',
        '{"trainflow_checkpoint": {"step": "seven"}}',
        '{"trainflow_checkpoint": {"step": true}}',
        '{"trainflow_checkpoint": {"step": "7"}}',
        '{"trainflow_checkpoint": {"step": NaN}}',
        '{"trainflow_checkpoint": {"step": 7}',
        '{"trainflow_checkpoint": ' + "[" * 100_000,
    ],
)
def test_another_line_is_no_checkpoint(line: str) -> None:
    assert parse_checkpoint_line(line, NOW) is None


@given(st.integers(0, 10**12), st.sampled_from(["", "[0]:"]))
def test_a_job_tells_with_which_checkpoint_it_begins(number: int, prefix: str) -> None:
    line = prefix + resumed_line(number)
    assert (parse_resumed_line(line), parse_checkpoint_line(line, NOW)) == (number, None), "it has not written one"


@pytest.mark.parametrize(
    "line",
    [
        "Resuming from /runs/a/step-1.pt.",
        checkpoint_line(7),
        '{"trainflow_resumed": 7}',
        '{"trainflow_resumed": {}}',
        '{"trainflow_resumed": {"checkpoint": null}}',
        '{"trainflow_resumed": {"checkpoint": 7}',
    ],
)
def test_another_line_names_no_checkpoint_to_begin_with(line: str) -> None:
    assert parse_resumed_line(line) is None


def test_the_line_of_transformers_trainer_is_read() -> None:
    line = "[0]:Saving model checkpoint to /runs/bert-1/checkpoint-500"
    assert parse_checkpoint_line(line, NOW) == CheckpointReport(step=500, num_bytes=None, saved_at=NOW)
    assert parse_checkpoint_line("Saving model checkpoint to /runs/bert-1/final", NOW) is None


def test_a_size_that_is_no_number_is_not_known() -> None:
    said = parse_checkpoint_line('{"trainflow_checkpoint": {"step": 7, "bytes": "many"}}', NOW)
    assert said == CheckpointReport(step=7, num_bytes=None, saved_at=NOW)


def test_a_program_of_its_own_reports_the_size_of_what_it_wrote(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "step-40"
    (folder / "shards").mkdir(parents=True)
    (folder / "model.pt").write_bytes(b"12345")
    (folder / "shards" / "0.pt").write_bytes(b"678")
    for path in (folder, folder / "model.pt", tmp_path / "none.pt", None):
        report.checkpoint(40, path)
    said = [parse_checkpoint_line(line, NOW) for line in capsys.readouterr().out.splitlines()]
    assert [checkpoint and checkpoint.num_bytes for checkpoint in said] == [8, 5, None, None]


def test_rank_0_alone_reports(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    report.checkpoint(40)
    assert capsys.readouterr().out == ""
