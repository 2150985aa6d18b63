"""The curves of a run follow its steps, also those that a restart repeats."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from tests.wording import wording
from trainflow.observed.step import Step
from trainflow.page.curves import RunCurves, Window, metric_title, titles_of_all

BEGIN = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


def steps(*losses: float | None, **metrics: float) -> tuple[Step, ...]:
    return tuple(
        Step(BEGIN + timedelta(seconds=number), 0, number, loss, None, None, metrics)
        for number, loss in enumerate(losses, 1)
    )


def test_new_steps_are_added_and_counted_as_a_new_version() -> None:
    curves, known = RunCurves(), steps(3.0, 2.0)
    curves.update(known)
    curves.update(known)
    assert curves.version == 1

    curves.update((*known, Step(BEGIN, 0, 3, 1.0, None, None)))

    [loss] = curves.payload(Window())["metrics"]
    assert (curves.version, loss["x"], loss["mean"]) == (2, [1, 2, 3], [3, 2, 1])


def test_a_step_that_is_repeated_after_a_restart_replaces_the_older_one() -> None:
    curves, known = RunCurves(), steps(3.0, 2.0, 1.5, 1.2)
    curves.update(known)

    curves.update((*known[:2], replace(known[2], loss=1.6), known[3]))

    [loss] = curves.payload(Window())["metrics"]
    assert loss["mean"] == [3, 2, 1.6, 1.2]


def test_a_metric_of_the_programs_own_has_a_curve_under_its_name() -> None:
    curves = RunCurves()
    curves.update(steps(1.0, 2.0, accuracy=0.5, mfu_percent=31.0))

    payload = curves.payload(Window())

    assert [(metric["key"], metric["title"], metric["unit"]) for metric in payload["metrics"]] == [
        ("loss", "Loss", ""),
        ("accuracy", "accuracy", ""),
        ("mfu_percent", "Model FLOPs utilization", "% of peak"),
    ]


def test_a_curve_is_told_in_words_with_its_values_that_are_not_finite() -> None:
    curves = RunCurves()
    curves.update(steps(4.0, math.nan, 2.0))

    [loss] = curves.payload(Window())["metrics"]

    assert loss["description"] == (
        wording("curves.a_curve_is_told_in_words_with_its_values_that_are_not_finite", "2", "3", "1")
    )
    assert loss["notFinite"] == [2]
    assert curves.not_finite() == [("Loss", 1)]
    json.dumps(loss, allow_nan=False)


def test_the_newest_value_is_as_it_was_logged_whatever_the_smoothing() -> None:
    curves = RunCurves()
    curves.update(steps(*(float(number % 2) for number in range(1, 101))))

    whole, part = (curves.metric("loss", Window(smoothing=20, last=last)) for last in (math.inf, 51))

    assert whole is not None
    assert part is not None
    assert (whole["newest"], part["newest"]) == ([100, 0], [51, 1])


def test_figures_have_the_titles_of_the_report() -> None:
    assert metric_title("step_ms_p50") == ("Step time, median", "ms")


def test_runs_whose_programs_count_differently_have_both_units_in_one_title() -> None:
    counted = [RunCurves(), RunCurves(), RunCurves()]
    for curves, unit in zip(counted, ("sequences", "samples", "samples"), strict=True):
        curves.update((Step(BEGIN, 0, 1, 2.0, None, 64.0, throughput_of=unit),))

    assert titles_of_all(counted) == {
        "loss": "Loss",
        "throughput": "Throughput sequences/s or Throughput samples/s",
    }
    assert titles_of_all(counted[1:])["throughput"] == "Throughput samples/s"


def test_smoothing_takes_the_mean_of_neighbours_and_leaves_the_band() -> None:
    curves = RunCurves()
    curves.update(steps(*(float(number % 2) for number in range(100))))

    [loss] = curves.payload(Window(smoothing=20))["metrics"]

    assert loss["mean"][50] == pytest.approx(0.5, abs=0.05)
    assert (min(loss["low"]), max(loss["high"])) == (0, 1)


def test_a_window_shows_its_part_alone() -> None:
    curves = RunCurves()
    curves.update(steps(*map(float, range(100))))

    [loss] = curves.payload(Window(first=10, last=12))["metrics"]

    assert loss["x"] == [10, 11, 12]
