"""The stager's line: what it prints, the workflow reads."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from trainflow.protocol.staging_line import StagingReport, parse_staging_line, staging_line

COUNTS = st.integers(min_value=0, max_value=10**18 - 1)
reports = st.builds(
    StagingReport,
    done_bytes=COUNTS,
    total_bytes=st.none() | COUNTS,
    files=COUNTS,
    bytes_per_second=st.floats(min_value=0, max_value=1e15),
)


@given(reports)
def test_a_report_comes_back_from_its_line_with_a_whole_rate(report: StagingReport) -> None:
    whole = replace(report, bytes_per_second=float(f"{report.bytes_per_second:.0f}"))
    assert parse_staging_line(f"{staging_line(report)}\n") == whole


@given(st.text() | st.text().map(lambda text: f"STAGE {text}"))
def test_other_lines_are_none(text: str) -> None:
    assert parse_staging_line(text) is None


def test_a_number_that_python_does_not_read_makes_another_line() -> None:
    assert parse_staging_line(f"STAGE {'1' * 5000}/? bytes 0 files 0 B/s") is None
