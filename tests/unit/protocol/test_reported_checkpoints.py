"""Checkpoints that a log reports are compared with the spec's pattern, and a pattern that matches them is proposed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol.checkpoint_pattern import CheckpointPattern
from trainflow.protocol.reported_checkpoints import Reported, newer, reported, unmatched_warning

RUN = "llm-0123"
PATTERN = "checkpoint-{step}"


def found(line: str, pattern: str = PATTERN) -> Reported | None:
    return reported(line, CheckpointPattern(pattern), RUN)


def warning(line: str, pattern: str = PATTERN) -> str | None:
    return unmatched_warning(found(line, pattern), pattern)


@pytest.mark.parametrize(
    ("line", "proposed"),
    [
        (f"Saving model checkpoint to /runs/{RUN}/20261127-0801/checkpoint-10", "**/checkpoint-{step}"),
        (f"Model weights saved in /runs/{RUN}/a/checkpoint-10/model.safetensors", "**/checkpoint-{step}"),
        (f"saving model to '/runs/{RUN}/logs/version_0/epoch=0-step=100.ckpt' as top 1", "**/epoch=*-step={step}.ckpt"),
        (f"Finished saving checkpoint to `/runs/{RUN}/ckpts/100`.", "**/{step}"),
        (f"[rank0]: wrote snapshot /runs/{RUN}/out/step_000020.pt (1.2 GB)", "**/step_{step}.pt"),
        (f"INFO saved checkpoint at step 10 to /runs/{RUN}/ckpt-10.pt", "ckpt-{step}.pt"),
        (f"Checkpoint saved: /runs/{RUN}/a/last.ckpt", "**/last.ckpt"),
        (f"Saved weights to /runs/{RUN}/x/weights.h5", "**/weights.h5"),
    ],
)
def test_a_checkpoint_that_the_pattern_does_not_match_is_reported_with_one_that_does(line: str, proposed: str) -> None:
    said = warning(line)
    assert said is not None
    assert said.endswith(f"set checkpoint.path to '{proposed}'.")
    assert warning(line, proposed) is None


@pytest.mark.parametrize(
    "line",
    [
        f"Saving model checkpoint to /runs/{RUN}/checkpoint-10",
        f"Model weights saved in /runs/{RUN}/checkpoint-10/model.safetensors",
        f"Saving model checkpoint to /runs/{RUN}",
        f"Saving model checkpoint to /runs/{RUN}/",
    ],
)
def test_what_the_pattern_matches_is_no_reason_for_a_warning(line: str) -> None:
    assert warning(line) is None
    assert found(line) is not None


@pytest.mark.parametrize(
    "line",
    [
        "",
        "saving model state 10/100 done",
        "Loading checkpoint from /runs/other/checkpoint-10",
        "Resuming from /runs/llm-0123/checkpoint-10.",
        "Configuration saved in out/checkpoint-10/config.json",
        "saved the model's log to out/train.log",
        "Saving checkpoint at 1 epochs",
        "uploaded the saved model to s3://bucket/checkpoint-10",
        "{'loss': 1.2, 'save_steps': 10}",
    ],
)
def test_other_lines_report_no_checkpoint(line: str) -> None:
    assert found(line) is None


def test_a_checkpoint_elsewhere_is_reported_as_such() -> None:
    said = warning("Saving model checkpoint to ./output/checkpoint-10")
    assert said is not None
    assert "./output/checkpoint-10, which is not below the run's folder" in said


def test_a_folder_that_may_hold_the_checkpoints_is_none_of_them() -> None:
    assert warning(f"saving checkpoint at iteration 10 to /runs/{RUN}/ckpt", "ckpt/iter_{step}") is None


def test_one_that_is_matched_counts_more_than_any_other() -> None:
    matched = Reported("checkpoint-1", is_below=True, is_matched=True)
    other = Reported("a/best", is_below=True, is_matched=False)
    assert newer(None, other) == newer(other, None) == other
    assert newer(matched, other) == newer(other, matched) == matched


def test_the_first_of_unmatched_reports_counts_so_that_one_warning_serves_them_all() -> None:
    first = Reported("runs_of/2026-11-27/checkpoint-20", is_below=True, is_matched=False)
    final = Reported("runs_of/2026-11-27/model.safetensors", is_below=True, is_matched=False)
    elsewhere = Reported("/tmp/start.pt", is_below=False, is_matched=False)
    assert newer(first, final) == newer(elsewhere, first) == newer(first, elsewhere) == first
    assert "set checkpoint.path to '**/checkpoint-{step}'." in str(unmatched_warning(first, "checkpoint-{step}"))


@given(st.text(max_size=300), st.sampled_from(["checkpoint-{step}", "**/*{step}*", "a/*/b"]))
def test_any_line_is_read_without_an_error(line: str, pattern: str) -> None:
    unmatched_warning(found(f"saved checkpoint {line}", pattern), pattern)
    unmatched_warning(found(f"saved checkpoint /runs/{RUN}/{line}", pattern), pattern)
