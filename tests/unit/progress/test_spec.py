"""The section `progress` of the run spec."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.fakes.runs import spec_with
from trainflow.errors import InvalidRunSpec
from trainflow.progress.missing_steps import LINES_BEFORE_WARNING, missing_steps_warning
from trainflow.progress.reader import ProgressReader
from trainflow.spec.progress import Format
from trainflow.spec.run_spec import RunSpec, parse_run_spec, stored_run_spec
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import StepsMissing


@pytest.mark.parametrize(
    "progress",
    [
        "auto",
        "none",
        {"pattern": r"step=(?P<step>\d+) train_loss=(?P<loss>\S+)"},
        {"pattern": r"^\[(?P<step>\d{1,3}(?:,\d{3})*)\].*loss[:=]\s*(?P<loss>[-+]?\d+\.?\d*(?:[eE][-+]?\d+)?|nan)"},
        {"json_lines": True},
        {"tensorboard": "."},
        {"trainer_state": "checkpoint-*/trainer_state.json"},
        {"preset": "megatron"},
    ],
)
def test_a_section_comes_back_from_a_stored_spec(progress: Any) -> None:
    spec = parse_run_spec(spec_with(progress=progress))
    assert parse_run_spec(json.loads(spec.model_dump_json())) == spec


@pytest.mark.parametrize(
    ("progress", "sentence"),
    [
        ({"pattern": "("}, "progress.pattern: is not a regular expression"),
        ({"pattern": r"loss (\d+)"}, "progress.pattern: has no group named step"),
        ({"pattern": r"(.{1,30}){1,30}(?P<step>\d+)"}, "progress.pattern: is too large, because repeats with a number"),
        ({"pattern": r"(?P<step>\d+)(?=,)"}, "progress.pattern: uses look-ahead or look-behind"),
        ({"preset": "keras"}, "progress.preset: must be 'hugging-face'"),
        ({"tensorboard": "../other"}, "progress.tensorboard: must be a path relative to the run's folder"),
        ({"trainer_state": "/runs/x/*.json"}, "progress.trainer_state: must be a path relative to the run's folder"),
        ({}, "progress: needs exactly one of"),
        ({"json_lines": True, "preset": "nemo"}, "progress: needs exactly one of"),
        ("sometimes", "progress: must be 'auto', 'none' or a format such as {preset: lightning}, got 'sometimes'"),
        (None, "progress: must be 'auto', 'none'"),
    ],
)
def test_a_section_that_cannot_work_is_one_sentence_that_names_the_field(progress: Any, sentence: str) -> None:
    with pytest.raises(InvalidRunSpec) as refused:
        parse_run_spec(spec_with(progress=progress))
    assert sentence in str(refused.value)
    assert str(refused.value).count("progress") <= 2


def test_a_pattern_that_an_earlier_version_accepted_is_read_and_never_searched() -> None:
    spec = {**spec_with(progress="auto"), "progress": {"pattern": r"(?<=step )(?P<step>\d+)"}}
    progress = stored_run_spec(spec).progress
    assert progress == RunSpec.model_validate(spec).progress == Format(pattern=spec["progress"]["pattern"])
    reader = ProgressReader(progress)
    assert reader.read(LogLine(text="step 7", logged_at=datetime(2026, 11, 1, tzinfo=UTC))) == []
    told = missing_steps_warning(progress, StepsMissing(after_step=None, num_lines=LINES_BEFORE_WARNING))
    assert told is not None
    assert told.startswith("No step is read from the log: progress.pattern uses look-ahead or look-behind")
    with pytest.raises(InvalidRunSpec, match="look-behind"):
        parse_run_spec(spec)
