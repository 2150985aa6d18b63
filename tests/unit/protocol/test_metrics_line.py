"""The tutorials' line: what rank 0 writes, the workflow reads."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.observed.step import Step, parse_metrics_line
from trainflow.protocol.metrics_line import metrics_line
from trainflow.protocol.step_report import StepFigures

COUNTS = st.integers(min_value=0, max_value=10**12)
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(9999, 12, 31), timezones=st.just(UTC))
steps = st.builds(
    StepFigures,
    epoch=COUNTS,
    step=COUNTS,
    loss=st.floats(),
    learning_rate=st.floats(min_value=0),
    sequences_per_second=st.floats(min_value=0),
)


def rounded(value: float, form: str) -> float:
    return float(f"{value:{form}}")


@given(
    step=steps, logged_at=MOMENTS, grad_norm=st.none() | st.floats(), rank=st.sampled_from(["", "[0]:", "[default0]: "])
)
def test_a_step_comes_back_from_its_line_to_the_digits_that_it_has(
    step: StepFigures, logged_at: datetime, grad_norm: float | None, rank: str
) -> None:
    line = metrics_line({**step, "grad_norm": grad_norm}, logged_at=logged_at, with_norm=grad_norm is not None)
    found = parse_metrics_line(f"{rank}{line}\n")
    assert found is not None
    assert repr(found) == repr(
        Step(
            logged_at=logged_at.replace(microsecond=0, fold=0),
            epoch=step["epoch"],
            step=step["step"],
            loss=rounded(step["loss"], ".4f"),
            learning_rate=rounded(step["learning_rate"], ".2e"),
            throughput=rounded(step["sequences_per_second"], ".2f"),
            metrics={} if grad_norm is None else {"grad_norm": grad_norm},
        )
    )


@pytest.mark.parametrize(
    ("line", "metrics"),
    [
        ("LOG Wed Dec 21 00:51:01 2022 - (0,14) step_loss: 10.5 learning_rate: 2e-06 throughput: 100", {}),
        (
            "[0]: LOG Wed Dec  21 00:51:01 2022 -  ( 0, 14 )  throughput : 7 step_loss : 1",
            None,
        ),
        (
            "LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 10.5 learning_rate : 2e-06 throughput : 100 "
            "tokens_per_second : 12800.5 accuracy : 0.25 note : none",
            {"tokens_per_second": 12800.5, "accuracy": 0.25},
        ),
    ],
)
def test_spaces_may_differ_and_further_fields_are_kept(line: str, metrics: dict[str, float] | None) -> None:
    when = datetime(2022, 12, 21, 0, 51, 1, tzinfo=UTC)
    expected = None if metrics is None else Step(when, 0, 14, 10.5, 2e-06, 100.0, metrics)
    assert parse_metrics_line(line) == expected


def test_a_line_may_lack_what_its_program_does_not_know() -> None:
    found = parse_metrics_line("LOG Wed Dec 21 00:51:01 2022 - (0, 14) step_loss : 10.5")
    assert found == Step(datetime(2022, 12, 21, 0, 51, 1, tzinfo=UTC), 0, 14, 10.5, None, None)


@given(st.text() | st.text().map(lambda text: f"LOG {text}"))
def test_other_lines_are_none(text: str) -> None:
    assert parse_metrics_line(text) is None


@pytest.mark.parametrize(
    "when",
    ["Wed Feb 31 00:51:01 2022", "Wed Abc 21 00:51:01 2022", "Wed Dec 21 25:51:01 2022", "Wed Dec 21 00:51:01 0000"],
)
def test_a_time_that_does_not_exist_makes_another_line(when: str) -> None:
    assert parse_metrics_line(f"LOG {when} - (0, 1) step_loss : 1.0 learning_rate : 1e-4 throughput : 2.0") is None


def test_a_number_that_python_does_not_read_makes_another_line() -> None:
    when = "Wed Dec 21 00:51:01 2022"
    line = f"LOG {when} - (0, {'1' * 5000}) step_loss : 1.0 learning_rate : 1e-4 throughput : 2.0"
    assert parse_metrics_line(line) is None


def test_a_step_takes_further_figures() -> None:
    when = datetime(2022, 12, 21, tzinfo=UTC)
    step = Step(when, 0, 1, 2.0, None, None, metrics={"accuracy": 0.5, "margin": 1.0})
    assert step.with_metrics({}) is step
    assert step.with_metrics({"margin": 2.0, "mfu_percent": 30.0}) == Step(
        when, 0, 1, 2.0, None, None, metrics={"accuracy": 0.5, "margin": 2.0, "mfu_percent": 30.0}
    )
