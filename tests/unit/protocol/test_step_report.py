"""The report behind a metrics line: what rank 0 writes, the workflow reads."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol.step_report import StepReport, parse_report_line, report_line

NUMBERS = st.none() | st.floats()
reports = st.builds(
    StepReport,
    step=st.integers(min_value=0),
    epoch=st.none() | st.integers(min_value=0),
    mfu_peak=st.none() | st.text(),
    **{name: NUMBERS for name, field in StepReport.__dataclass_fields__.items() if str(field.type).startswith("float")},
)


@given(report=reports, losses=st.dictionaries(st.sampled_from(["mlm_loss", "nsp_loss"]), st.floats()))
def test_a_report_comes_back_from_its_line_but_for_what_is_not_finite(
    report: StepReport, losses: dict[str, float]
) -> None:
    found = parse_report_line(f"[0]:{report_line(report, losses)}\n")
    assert found is not None
    assert parse_report_line(report_line(found)) == found
    for name, value in vars(report).items():
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
