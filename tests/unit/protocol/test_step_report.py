"""The report behind a metrics line: what rank 0 writes, the workflow reads."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol.metrics_line import StepMetrics
from trainflow.protocol.step_report import StepReport, parse_report_line, report_line

NUMBERS = st.none() | st.floats()
reports = st.builds(
    StepReport,
    step=st.integers(min_value=0, max_value=10**15),
    epoch=st.none() | st.integers(min_value=0, max_value=10**15),
    mfu_peak=st.none() | st.text(),
    **{
        name: NUMBERS
        for name, field in StepReport.__dataclass_fields__.items()
        if str(field.type).startswith("float") and name != "epoch"
    },
)


@given(report=reports, losses=st.dictionaries(st.sampled_from(["mlm_loss", "nsp_loss"]), st.floats()))
def test_a_report_comes_back_from_its_line_but_for_what_is_not_finite(
    report: StepReport, losses: dict[str, float]
) -> None:
    found = parse_report_line(f"[0]:{report_line(report, losses)}\n")
    assert found is not None
    assert parse_report_line(report_line(found)) == found
    assert found.others == {name: pytest.approx(loss, abs=1e-4) for name, loss in losses.items() if math.isfinite(loss)}
    for name, value in vars(report).items():
        if name == "others":
            continue
        if isinstance(value, float):
            assert getattr(found, name) == (pytest.approx(value, abs=0.5) if math.isfinite(value) else None)
        else:
            assert getattr(found, name) == value


@given(st.text() | st.text().map(lambda text: f'{{"trainflow_metrics": {text}}}'))
def test_other_lines_are_none_or_a_report(text: str) -> None:
    found = parse_report_line(text)
    assert found is None or isinstance(found.step, int)


@pytest.mark.parametrize(
    "report",
    [
        "{}",
        "[]",
        "null",
        '{"step": "14"}',
        '{"step": true}',
        '{"step": 1, "mfu_percent": "many"}',
        '{"step": 1, "mfu_peak": 3}',
        "[" * 100_000,
        f'{{"step": {"1" * 5000}}}',
    ],
    ids=range(9),
)
def test_a_report_that_is_none_is_passed_over(report: str) -> None:
    assert parse_report_line(f'{{"trainflow_metrics": {report}}}') is None


def test_numbers_beyond_all_floats_are_unknown() -> None:
    line = json.dumps({"trainflow_metrics": {"step": 1, "mfu_percent": 10**400}})
    assert parse_report_line(line) == StepReport(step=1)
    assert parse_report_line('{"trainflow_metrics": {"step": 1, "mfu_percent": NaN}}') == StepReport(step=1)


def test_a_report_may_be_behind_a_progress_bar_that_shares_the_stream() -> None:
    line = ' 10%|█         | 10/100 [00:01<00:09, 10.0it/s]{"trainflow_metrics": {"step": 10, "train/loss": 2.5}}'
    assert parse_report_line(line) == StepReport(step=10, loss=2.5)


def test_a_loss_that_is_not_finite_is_a_word() -> None:
    found = parse_report_line('{"trainflow_metrics": {"step": 1, "loss": "nan"}}')
    assert found is not None
    assert math.isnan(found.loss or 0.0)


NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("logged_at", "expected"),
    [
        (None, NOW),
        ((NOW - timedelta(hours=5)).timestamp(), NOW - timedelta(hours=5)),
        ((NOW - timedelta(days=20)).timestamp(), NOW),
        ((NOW + timedelta(hours=3)).timestamp(), NOW),
        (1e300, NOW),
    ],
)
def test_the_time_in_a_report_counts_unless_cloudwatch_would_refuse_it(
    logged_at: float | None, expected: datetime
) -> None:
    assert StepReport(step=1, logged_at=logged_at).time(NOW) == expected


def test_a_report_alone_is_a_step_with_all_that_it_says() -> None:
    found = parse_report_line(
        '{"trainflow_metrics": {"step": 7, "loss": 1.5, "lr": 0.1, "grad_norm": 2, "accuracy": 0.5, "note": "x"}}'
    )
    assert found is not None
    assert found.as_step(NOW) == StepMetrics(NOW, None, 7, 1.5, 0.1, None, metrics={"grad_norm": 2.0, "accuracy": 0.5})
