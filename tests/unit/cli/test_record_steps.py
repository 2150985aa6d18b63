"""The steps that the workflow keeps: few, evenly spaced, and the same however often a poll is repeated."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from tests.unit.cli.recorded_runs import recorded
from trainflow.observed.step import Step, parse_report_line, step_from_figures
from trainflow.page.curves import RunCurves, Window
from trainflow.protocol.step_report import report_line
from trainflow.record.steps import MAX_STEPS, KeptSteps, kept_steps_from_json, kept_steps_of
from trainflow.record.wording import speed_of
from trainflow.report import render_report
from trainflow.workflow.run import LinesSinceStep, MetricsCursor

START = datetime(2026, 11, 21, 12, tzinfo=UTC)


def steps(*numbers: int, throughput: float = 100.0) -> list[Step]:
    return [
        Step(START + timedelta(seconds=number), 0, number, 10 - number / 1e6, 4e-4, throughput + number % 7)
        for number in numbers
    ]


def kept_in_batches(numbers: range, *, size: int) -> KeptSteps:
    kept, logged = KeptSteps(), steps(*numbers)
    for begin in range(0, len(logged), size):
        batch = logged[begin : begin + size]
        kept = kept.extended(batch, MetricsCursor(first_step=1, datapoints=begin + len(batch)))
    return kept


def test_a_short_training_is_kept_whole() -> None:
    assert kept_steps_of(steps(*range(1, MAX_STEPS + 1))).steps == tuple(steps(*range(1, MAX_STEPS + 1)))


@pytest.mark.parametrize("logged", [range(1, 100_001), range(10, 300_000, 10), range(1, 60_000, 10)])
def test_a_long_training_is_kept_evenly_spaced_with_its_first_and_its_newest_step(logged: range) -> None:
    kept = kept_in_batches(logged, size=300)
    numbers = [step.step for step in kept.steps]
    assert MAX_STEPS // 2 <= len(numbers) <= MAX_STEPS
    assert (numbers[0], numbers[-1]) == (logged[0], logged[-1])
    assert len({later - earlier for earlier, later in pairwise(numbers[:-1])}) == 1
    assert kept.progress.datapoints == len(logged)
    assert kept.sequences_per_second == pytest.approx(103.0, abs=1)
    assert len(kept.to_json()) < 100_000


def test_what_is_kept_does_not_depend_on_how_it_came() -> None:
    assert kept_in_batches(range(1, 5001), size=300).steps == kept_in_batches(range(1, 5001), size=7).steps


def test_a_poll_that_is_repeated_changes_nothing() -> None:
    once = kept_in_batches(range(1, 5001), size=300)
    assert once.extended(steps(*range(4700, 5001)), once.progress) == once


def test_a_step_that_is_trained_again_counts_as_it_was_last() -> None:
    kept = kept_steps_of(steps(1, 2, 3)).extended(steps(3, throughput=50.0), MetricsCursor())
    assert [round(step.throughput) for step in kept.steps] == [101, 102, 53]


def test_the_file_restores_the_kept_steps() -> None:
    diverged = Step(START, 0, 4, math.inf, 0.0, 100.0)
    kept = kept_steps_of([*steps(1, 2, 3), diverged])
    assert kept_steps_from_json(kept.to_json()) == kept
    assert '"inf"' in kept.to_json(), "JSON has no such number"


def test_further_figures_and_reports_are_kept_and_read_again() -> None:
    bare = Step(START, None, 1, None, None, None, {"reward": 0.5})
    (line,) = steps(2)
    report = line.with_metrics({"mfu_percent": 30.0, "mlm_loss": 2.5})
    kept = KeptSteps().extended([bare, line], MetricsCursor()).extended([report.addition(())], MetricsCursor())
    assert kept.steps == (bare, report), "figures that came a poll later than the line"
    assert [dict(step.metrics) for step in kept.steps] == [{"reward": 0.5}, {"mfu_percent": 30.0, "mlm_loss": 2.5}]
    assert kept_steps_from_json(kept.to_json()) == kept
    assert kept.last_metrics == {"reward": 0.5, "mfu_percent": 30.0, "mlm_loss": 2.5}


def test_a_document_of_an_earlier_version_is_read() -> None:
    columns = ["logged_at", "epoch", "step", "loss", "learning_rate", "throughput"]
    older = {"every": 1, "progress": {"last_step": 2}, "columns": columns, "steps": [[0, 0, 2, "nan", 1e-4, 100.0]]}
    (step,) = kept_steps_from_json(json.dumps(older)).steps
    assert (step.step, step.throughput, step.metrics) == (2, 100.0, {})


def test_the_record_says_that_nothing_was_found() -> None:
    run = recorded("succeeded")
    record = run.record(kept=KeptSteps(progress=MetricsCursor(since_step=LinesSinceStep(num_lines=200))))
    (warning,) = record.warnings
    assert "first 200" in warning
    assert run.record().warnings == []


@pytest.mark.parametrize(
    ("name", "unit"),
    [("samples/s", "samples"), ("train/samples_per_second", "samples"), ("sequences_per_second", "sequences")],
)
def test_the_speed_has_the_unit_of_the_program(name: str, unit: str) -> None:
    logged = [step_from_figures({"step": number, "loss": 2.0, name: 120.5}, logged_at=START) for number in (1, 2)]
    kept = kept_steps_from_json(kept_steps_of([step for step in logged if step is not None]).to_json())
    record = recorded("succeeded").record(kept=kept)
    page = render_report(record, kept.steps)
    assert record.training is not None
    assert speed_of(record.training.sequences_per_second, {}, record.training.throughput_of) == f"120.5 {unit}/s"
    assert f"{unit.capitalize()}/s" in page
    other = {"samples": "sequences", "sequences": "samples"}[unit]
    assert f"{other.capitalize()}/s" not in page
    curves = RunCurves()
    curves.update(kept.steps)
    throughput = curves.metric("throughput", Window())
    assert throughput is not None
    assert throughput["unit"] == f"{unit}/s"
    report = parse_report_line(report_line({"step": 1, f"{unit}_per_second": 3.0}), START)
    assert report is not None
    assert (report.throughput, report.throughput_of) == (3.0, unit)


def test_a_record_has_the_median_of_every_speed() -> None:
    """The share of one device is not the sum over them, and of two figures of the same data only the first counts."""
    others = {
        "images/s": 8.0,
        "tokens_per_second_per_device": 3.0,
        "eval/tokens_per_second": 1.0,
        "steps_per_second": 2,
    }
    logged = [
        step_from_figures({"step": number, "loss": 2.0, "tokens_per_second": speed, **others}, logged_at=START)
        for number, speed in ((1, 20.0), (2, 100.0), (3, 110.0))
    ]
    record = recorded("succeeded").record(kept=kept_steps_of([step for step in logged if step is not None]))
    assert record.training is not None
    assert record.training.speeds == {"images": 8.0, "tokens": 100.0, "tokens per process": 3.0}
