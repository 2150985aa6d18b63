"""The report behind a metrics line: what rank 0 writes, the workflow reads."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainflow.observed.step import Step, parse_report_line
from trainflow.protocol.step_report import StepFigures, is_relayed, report_line

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
NUMBERS = st.none() | st.floats()
reports = st.builds(
    StepFigures,
    step=st.integers(min_value=0, max_value=10**15),
    epoch=st.none() | st.integers(min_value=0, max_value=10**15),
    mfu_peak=st.none() | st.text(),
    **{name: NUMBERS for name in StepFigures.__annotations__ if name not in ("step", "epoch", "mfu_peak")},
)


def step(number: int = 1, **figures: float | None) -> Step:
    """The step of a report without the figures that a metrics line has, unless they are given."""
    own = {name: figures.pop(name, None) for name in ("epoch", "loss", "learning_rate", "throughput")}
    return Step(NOW, step=number, **own, metrics=figures)


@given(report=reports, losses=st.dictionaries(st.sampled_from(["mlm_loss", "nsp_loss"]), st.floats()))
def test_a_report_comes_back_from_its_line_but_for_what_is_not_finite(
    report: StepFigures, losses: dict[str, float]
) -> None:
    figures = {**losses, **report}
    found = parse_report_line(f"[0]:{report_line(figures)}\n", NOW)
    assert found is not None
    named = {"throughput": "sequences_per_second"}
    known = {name: figures[named.get(name, name)] for name in ("loss", "learning_rate", "throughput")}
    further = {
        name: value
        for name, value in figures.items()
        if name not in ("step", "epoch", "mfu_peak", "logged_at", "loss", "learning_rate", "sequences_per_second")
    }
    assert (found.step, found.epoch) == (report["step"], report["epoch"])
    for name, value in known.items():
        assert found.figure(name) == (pytest.approx(value, abs=0.5) if is_finite(value) else None)
    assert found.metrics == {name: pytest.approx(value, abs=0.5) for name, value in further.items() if is_finite(value)}
    for name, loss in losses.items():
        assert found.metrics.get(name) == (pytest.approx(loss, abs=1e-4) if math.isfinite(loss) else None)


def is_finite(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


@given(st.text() | st.text().map(lambda text: f'{{"trainflow_metrics": {text}}}'))
def test_other_lines_are_none_or_a_report(text: str) -> None:
    found = parse_report_line(text, NOW)
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
        '{"step": 1, "mfu_percent": true}',
        '{"step": 1, "mfu_peak": 3}',
        "[" * 100_000,
        f'{{"step": {"1" * 5000}}}',
    ],
    ids=range(10),
)
def test_a_report_that_is_none_is_passed_over(report: str) -> None:
    assert parse_report_line(f'{{"trainflow_metrics": {report}}}', NOW) is None


def test_numbers_beyond_all_floats_are_unknown() -> None:
    line = json.dumps({"trainflow_metrics": {"step": 1, "mfu_percent": 10**400}})
    assert parse_report_line(line, NOW) == step()
    assert parse_report_line('{"trainflow_metrics": {"step": 1, "mfu_percent": NaN}}', NOW) == step()


def test_a_report_may_be_behind_a_progress_bar_that_shares_the_stream() -> None:
    line = ' 10%|█         | 10/100 [00:01<00:09, 10.0it/s]{"trainflow_metrics": {"step": 10, "train/loss": 2.5}}'
    assert parse_report_line(line, NOW) == step(10, loss=2.5)


def test_a_loss_that_is_not_finite_is_a_word() -> None:
    found = parse_report_line('{"trainflow_metrics": {"step": 1, "loss": "nan"}}', NOW)
    assert found is not None
    assert math.isnan(found.loss or 0.0)


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
    assert time_of(logged_at) == expected


def time_of(logged_at: float | None) -> datetime:
    """Time of the step of a report with this time, in a line of `NOW`."""
    found = parse_report_line(report_line({"step": 1, "logged_at": logged_at}), NOW)
    assert found is not None
    return found.logged_at


def test_a_report_alone_is_a_step_with_all_that_it_says() -> None:
    found = parse_report_line(
        '{"trainflow_metrics": {"step": 7, "loss": 1.5, "lr": 0.1, "grad_norm": 2, "accuracy": 0.5, "note": "x"}}',
        NOW,
    )
    assert found == Step(NOW, None, 7, 1.5, 0.1, None, metrics={"grad_norm": 2.0, "accuracy": 0.5})


@pytest.mark.parametrize(("early", "late"), [(timedelta(days=13), timedelta(hours=1))])
def test_the_bounds_of_that_time_still_count(early: timedelta, late: timedelta) -> None:
    for logged_at in (NOW - early, NOW + late):
        assert time_of(logged_at.timestamp()) == logged_at
        beyond = logged_at + (logged_at - NOW) / 10
        assert time_of(beyond.timestamp()) == NOW


def test_numbers_have_the_decimals_that_their_kind_needs() -> None:
    report = StepFigures(
        step=1,
        loss=1.23456789,
        learning_rate=0.123456789012,
        mfu_percent=31.23456,
        data_wait_percent=0.12345,
        memory_mib=1234.6,
        tokens_per_second=825518.123,
    )
    assert json.loads(report_line(report)) == {
        "trainflow_metrics": {
            "step": 1,
            "loss": 1.2346,
            "learning_rate": 0.123456789,
            "mfu_percent": 31.23,
            "data_wait_percent": 0.123,
            "memory_mib": 1235.0,
            "tokens_per_second": 825518.1,
        }
    }


@pytest.mark.parametrize(
    ("said", "epoch"),
    [("2", 2), ("2.0", 2), ("2.5", 2.5), (str(10**15), 10**15), (str(10**15 + 1), None), ("null", None), ("NaN", None)],
)
def test_an_epoch_is_a_whole_number_where_it_is_one(said: str, epoch: float | None) -> None:
    found = parse_report_line(f'{{"trainflow_metrics": {{"step": 1, "epoch": {said}}}}}', NOW)
    assert found == step(epoch=epoch)
    assert found is not None
    assert type(found.epoch) is type(epoch)


def test_an_addition_has_only_the_figures_that_are_not_known_yet() -> None:
    whole = step(3, loss=2.0, grad_norm=1.0, mfu_percent=30.0, accuracy=0.5, margin=0.1)
    rest = whole.addition(frozenset({"grad_norm", "accuracy", "loss", "unknown"}))
    assert rest == replace(step(3, mfu_percent=30.0, margin=0.1), is_addition=True)
    before = step(3, loss=1.0, grad_norm=2.0)
    assert rest.after(before) == step(3, loss=1.0, grad_norm=2.0, mfu_percent=30.0, margin=0.1)
    assert rest.after(None) is rest
    assert (whole.after(before), whole.after(None)) == (whole, whole), "a step that is repeated replaces the older one"


def test_a_figure_is_found_by_its_name() -> None:
    found = step(loss=2.0, mfu_percent=30.0)
    assert [found.figure(name) for name in ("loss", "throughput", "mfu_percent", "other")] == [2.0, None, 30.0, None]


@pytest.mark.parametrize(
    ("line", "relayed"),
    [
        ('{"trainflow_metrics": {"step": 1, "loss": 2.0, "relayed": true}}', True),
        ('[0]:{"trainflow_alive": {"files": 3}}', True),
        ('{"trainflow_metrics": {"step": 1, "loss": 2.0}}', False),
        ('{"metrics": {"relayed": true}}', False),
        ("Traceback (most recent call last):", False),
    ],
)
def test_lines_of_the_program_beside_the_training_are_told_apart(line: str, relayed: bool) -> None:
    assert is_relayed(line) is relayed


def test_the_time_of_a_step_is_none_of_its_figures() -> None:
    logged_at = NOW - timedelta(hours=1)
    line = report_line({"step": 1, "logged_at": logged_at.timestamp(), "mfu_percent": 30.0})
    assert parse_report_line(line, NOW) == Step(logged_at, None, 1, None, None, None, metrics={"mfu_percent": 30.0})
