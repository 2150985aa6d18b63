"""Metrics from rank 0's log in CloudWatch: reports beside the metrics lines, and metrics of the alarms."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lambdas.gateways import metrics
from lambdas.handlers import publish_metrics
from lambdas.logic import metric_data
from lambdas.logic.program_output import last_line
from lambdas.logic.step_metrics import Batch, advanced, is_behind, next_batch
from lambdas.logic.unread_log import UnreadLines
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import STARTED_AT, run_of, spec_with
from tests.unit.lambdas.conftest import CLUSTER, CONTEXT, Aws
from trainflow.observed.step import Step, parse_metrics_line, parse_report_line
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.metric_datum import Datum
from trainflow.workflow.metric_names import ClusterMetric, RunMetric
from trainflow.workflow.run import MetricsCursor

NOW = STARTED_AT + timedelta(hours=1)


def line(step: int, *, loss: float = 9.5) -> str:
    return (
        f"[0]:LOG {STARTED_AT + timedelta(seconds=step):%a %b %d %H:%M:%S %Y} - (0, {step}) step_loss : {loss:.4f} "
        "learning_rate : 2.80e-06 throughput : 200.00"
    )


def report(step: int, **fields: Any) -> str:
    known = {"step": step, "tokens_per_second": 25600.0, "mfu_percent": 31.5, **fields}
    return "[0]:" + json.dumps({"trainflow_metrics": known})


def step_of(number: int, *, loss: float = 9.5, throughput: float = 200.0) -> Step:
    return Step(STARTED_AT, 0, number, loss, 1e-4, throughput)


def bare_step(number: int, **metrics: float) -> Step:
    return Step(NOW, None, number, None, None, None, metrics)


def test_a_report_is_understood_with_and_without_what_it_may_lack() -> None:
    known = {"tokens_per_second": 25600.0, "mfu_percent": 31.5}
    assert parse_report_line(report(14), NOW) == bare_step(14, **known)
    assert parse_report_line('{"trainflow_metrics": {"step": 3}}', NOW) == bare_step(3)
    found = parse_report_line(report(14, optimizer="lamb", mfu_percent=None), NOW)
    assert found == bare_step(14, tokens_per_second=25600.0)


@settings(deadline=None)
@given(st.text() | st.text().map(lambda text: f'{{"trainflow_metrics": {text}}}'))
def test_any_other_line_is_no_report(text: str) -> None:
    assert parse_report_line(text, NOW) is None


@pytest.mark.parametrize("known", ["{}", "[]", '{"step": "x"}', '{"step": 1, "mfu_percent": "much"}', "{" * 5000])
def test_a_report_that_is_none_is_passed_over(known: str) -> None:
    assert parse_report_line(f'{{"trainflow_metrics": {known}}}', NOW) is None


def test_neither_line_counts_as_a_programs_last_line() -> None:
    assert last_line(["ValueError: no flux", line(7)]) == ""
    assert last_line([line(7), report(7)]) == ""
    for name in ("opening", "resumed", "checkpoint"):
        assert last_line(["the program begins", f'[0]:{{"trainflow_{name}": {{"path": "/runs/a"}}}}']) == ""


@settings(deadline=None)
@given(
    cuts=st.lists(st.integers(min_value=0, max_value=60), max_size=10),
    steps=st.integers(min_value=1, max_value=30),
    reporting=st.sets(st.integers(min_value=1, max_value=30)),
)
def test_no_step_and_no_report_is_lost_or_doubled_wherever_the_polls_fall(
    cuts: list[int], steps: int, reporting: set[int]
) -> None:
    log = []
    for step in range(1, steps + 1):
        at = STARTED_AT + timedelta(seconds=step // 3)
        log.append(LogLine(at, line(step)))
        if step in reporting:
            log.append(LogLine(at + timedelta(milliseconds=1), report(step)))
    cursor, published, reported = MetricsCursor(), [], []
    for end in [*sorted(min(cut, len(log)) for cut in cuts), len(log)]:
        since = cursor.log.since if cursor.log else STARTED_AT
        unread = UnreadLines([each for each in log[:end] if each.logged_at >= since], cursor.log, pod="pod")
        batch = next_batch(unread, cursor)
        published += [step.step for step in batch.steps if not step.is_addition]
        reported += [step.step for step in batch.steps if "mfu_percent" in step.metrics]
        cursor = advanced(cursor, batch, log=unread.position, now=NOW)
        cursor = MetricsCursor.model_validate_json(json.dumps(cursor.model_dump(mode="json"), allow_nan=False))
    assert published == list(range(1, steps + 1))
    assert reported == sorted(step for step in reporting if step <= steps)
    assert (cursor.datapoints, cursor.first_step, cursor.last_step) == (steps, 1, steps)


def test_a_cursor_of_an_older_version_is_continued() -> None:
    older = {"since": None, "first_step": 1, "last_step": 9, "datapoints": 9, "first_loss": 9.0, "last_loss": 8.0}
    found = MetricsCursor.model_validate({**older, "progressed_at": None, "last_report": 9})
    assert (found.last_step, found.figures_before_report) == (9, None)


def test_a_diverged_loss_travels_through_the_state_machine_as_no_number() -> None:
    cursor = advanced(MetricsCursor(), Batch(steps=[step_of(1, loss=math.nan)]), log=None, now=NOW)
    assert (cursor.first_loss, cursor.last_loss, cursor.last_step) == (None, None, 1)


def test_a_step_without_a_loss_changes_neither_the_first_nor_the_last_one() -> None:
    others = [replace(step_of(number), loss=None) for number in (0, 3)]
    losses = [step_of(1, loss=9.0), step_of(2, loss=8.0)]
    cursor = MetricsCursor()
    for steps in (others[:1], losses, others[1:]):
        cursor = advanced(cursor, Batch(steps=steps), log=None, now=NOW)
    assert (cursor.first_loss, cursor.last_loss, cursor.first_step, cursor.last_step) == (9.0, 8.0, 0, 3)


def progress(steps: Sequence[Step], cursor: MetricsCursor, *, floor: float | None = None) -> dict[str, float]:
    data = metric_data.of_progress(CLUSTER, steps, cursor, min_throughput=floor, now=NOW)
    return {datum.metric: datum.value for datum in data}


def test_the_age_of_the_newest_step_is_published_from_the_first_step_on() -> None:
    waiting = progress([], MetricsCursor())
    assert waiting == {ClusterMetric.NON_FINITE_LOSS: 0}
    stalled = progress([], MetricsCursor(last_step=3, progressed_at=NOW - timedelta(minutes=7)))
    assert stalled[ClusterMetric.SECONDS_SINCE_STEP] == 420


def test_steps_whose_loss_is_no_number_are_counted() -> None:
    steps = [step_of(1), step_of(2, loss=math.nan), step_of(3, loss=math.inf)]
    assert progress(steps, MetricsCursor())[ClusterMetric.NON_FINITE_LOSS] == 2


def test_throughput_is_published_relative_to_the_lower_limit_of_the_spec() -> None:
    steps = [step_of(1, throughput=10), step_of(2, throughput=150)]
    assert progress(steps, MetricsCursor(), floor=200)[ClusterMetric.THROUGHPUT_OVER_FLOOR] == 0.75
    assert ClusterMetric.THROUGHPUT_OVER_FLOOR not in progress(steps, MetricsCursor())
    assert ClusterMetric.THROUGHPUT_OVER_FLOOR not in progress([], MetricsCursor(), floor=200)


def test_fields_that_a_program_does_not_know_are_not_published() -> None:
    steps = [bare_step(1, tokens_per_second=8.0), bare_step(2)]
    assert [(datum.metric, datum.value) for datum in metric_data.of_steps("bert", steps)] == [
        (RunMetric.TOKENS_PER_SECOND, 8.0)
    ]


def test_a_programs_own_figures_have_a_point_for_every_second() -> None:
    steps = [bare_step(1, tokens_per_second=8.0, accuracy=0.5)]
    data = list(metric_data.of_steps("bert", steps, names=("accuracy",)))
    assert {datum.metric: datum.every_second for datum in data} == {RunMetric.TOKENS_PER_SECOND: True, "accuracy": True}


def test_a_figure_of_a_step_that_has_a_metric_of_trainflows_has_its_name_and_unit() -> None:
    step = replace(step_of(1), metrics={"mfu_percent": 31.5})
    data = list(metric_data.of_steps("bert", [step]))
    (found,) = (datum for datum in data if datum.value == 31.5)
    assert (found.metric, found.unit) == (RunMetric.MODEL_FLOPS_UTILIZATION, "Percent")


def test_a_run_knows_when_its_first_step_was_found_whatever_follows() -> None:
    cursor = advanced(MetricsCursor(), Batch(steps=[step_of(1)]), log=None, now=NOW)
    later = advanced(cursor, Batch(steps=[step_of(2)]), log=None, now=NOW + timedelta(minutes=1))
    assert cursor.first_step_at == later.first_step_at == NOW


def test_a_cursor_is_behind_if_steps_or_reports_of_steps_have_been_published_since() -> None:
    published = MetricsCursor(last_step=5)
    assert not is_behind(published, published)
    assert is_behind(MetricsCursor(last_step=4), published)
    without_report = MetricsCursor(last_step=5, figures_before_report=("grad_norm",))
    assert is_behind(MetricsCursor(last_step=4), without_report)
    assert is_behind(without_report, published)
    assert not is_behind(published, without_report)
    assert not is_behind(MetricsCursor(last_step=6, figures_before_report=()), published)
    assert is_behind(MetricsCursor(), MetricsCursor(last_step=0))


def test_steps_that_have_been_published_are_replays_and_new_ones_are_none() -> None:
    batch = Batch(steps=[step_of(4), step_of(5)])
    assert batch.behind(MetricsCursor(last_step=3)) == batch
    again = batch.behind(MetricsCursor(last_step=4))
    assert ([step.step for step in again.steps], again.has_replays) == ([5], True)
    assert replace(batch, has_replays=True).behind(MetricsCursor(last_step=3)).has_replays, "of lines before these"


def test_a_run_that_an_earlier_version_has_read_goes_on_with_trainflows_lines_and_a_new_one_with_any() -> None:
    lines = [LogLine(logged_at=NOW, text=json.dumps({"step": 3, "loss": 1.5}))]
    assert [step.step for step in next_batch(lines, MetricsCursor()).steps] == [3]
    assert next_batch(lines, MetricsCursor(last_step=2)).steps == []


def test_what_cloudwatch_refuses_is_not_sent_and_a_thousand_data_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    class CloudWatch:
        def put_metric_data(self, *, Namespace: str, MetricData: list[Any]) -> None:
            assert Namespace == "Trainflow"
            calls.append(len(MetricData))

    monkeypatch.setattr(metrics, "client", lambda _service: CloudWatch())

    def datum(value: float) -> Datum:
        return Datum(metric="StepLoss", dimension="RunId", of="bert", value=value, at=NOW)

    metrics.publish([datum(math.nan), datum(math.inf), datum(1e200)], deployment="blue")
    assert calls == []
    metrics.publish([datum(1.0)] * 1001, deployment="blue")
    assert calls == [1000, 1]


def test_one_poll_publishes_everything_in_one_call(aws: Aws, cluster: FakeKubernetesApi) -> None:
    now = datetime.now(UTC)
    run = run_of(spec_with(limits__min_throughput=400))
    stamp = now.strftime("%Y-%m-%dT%H:%M:%S.000000000Z")
    cluster.logs["pod"] = "".join(f"{stamp} {text}\n" for text in (line(1), report(1), line(2), line(3, loss=math.nan)))
    event = {"run": run.model_dump(mode="json"), "rank0": "pod", "cursor": MetricsCursor().model_dump(mode="json")}
    sent: list[Datum] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "publish", lambda data, deployment: sent.extend(data) or 0)
        answer = publish_metrics.lambda_handler(event, CONTEXT)
    json.dumps(answer, allow_nan=False)
    assert (answer["cursor"]["last_step"], answer["cursor"]["figures_before_report"]) == (3, [])
    by_cluster = {
        datum.metric: datum.value for datum in sent if (datum.dimension, datum.of) == ("ClusterName", CLUSTER)
    }
    assert by_cluster == {"NonFiniteLoss": 1, "SecondsSinceStep": 0, "ThroughputOverFloor": 0.5}
    by_run = [datum.metric for datum in sent if (datum.dimension, datum.of) == ("RunId", run.run_id)]
    assert sorted(set(by_run)) == [
        "LearningRate",
        "ModelFlopsUtilization",
        "StepLoss",
        "Throughput",
        "TokensPerSecond",
    ]
    assert parse_metrics_line(line(3, loss=math.nan)) is not None
    metrics.publish(sent, deployment="twin")


def test_losses_that_are_not_finite_are_counted_until_a_finite_one_comes() -> None:
    cursor, counted = MetricsCursor(), []
    for losses in ([2.0, math.nan], [math.inf], [math.nan, math.nan], [1.0], [math.nan]):
        first = (cursor.last_step or 0) + 1
        steps = [step_of(first + number, loss=loss) for number, loss in enumerate(losses)]
        cursor = advanced(cursor, Batch(steps=steps), log=None, now=NOW)
        counted.append(cursor.non_finite_in_a_row)
    assert counted == [1, 2, 4, 0, 1]
