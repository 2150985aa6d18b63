"""A step reaches CloudWatch and the record once and whole, wherever a poll ends and whichever call is repeated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lambdas.gateways import metrics, objects
from lambdas.handlers import recording
from lambdas.handlers.publishing import publish_lines
from lambdas.logic.unread_log import UnreadLines
from tests.fakes.runs import run_of
from trainflow.protocol.step_report import report_line
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.metric_datum import Datum
from trainflow.workflow.run import MetricsCursor

RUN = run_of()
NOW = datetime.now(UTC).replace(microsecond=0)


def metrics_line(step: int, *, norm: str = "") -> LogLine:
    fields = f"step_loss : {step}.0000 learning_rate : 4e-4 throughput : 200.00{norm}"
    return LogLine(NOW, f"LOG {NOW:%a %b %d %H:%M:%S %Y} - (0, {step}) {fields}")


def report(step: int, **figures: float) -> LogLine:
    return LogLine(NOW, report_line({"step": step, "loss": float(step), "learning_rate": 4e-4, **figures}))


class World:
    """One stored document in place of S3, and a list in place of CloudWatch."""

    def __init__(self) -> None:
        self.document: str | None = None
        self.data: list[Datum] = []

    def read(self, _bucket: str, _key: str, *, limit_bytes: int) -> tuple[bytes, str] | None:
        del limit_bytes
        return None if self.document is None else (self.document.encode(), "etag")

    def write(self, _bucket: str, _key: str, text: str, *, etag: str | None) -> str:
        del etag
        self.document = text
        return "etag"

    def publish(self, data: list[Datum], *, deployment: str) -> int:
        del deployment
        self.data += [datum for datum in data if datum.of == RUN.run_id]
        return 0

    def poll(self, log: list[LogLine], cursor: MetricsCursor | None = None, *, pod: str = "pod") -> MetricsCursor:
        """The position after a poll of a log, as the state machine passes it on."""
        cursor = cursor or MetricsCursor()
        unread = UnreadLines(log, cursor.log if cursor.log and cursor.log.pod == pod else None, pod=pod)
        after = publish_lines(RUN, unread, unread, cursor).cursor
        return MetricsCursor.model_validate_json(json.dumps(after.model_dump(mode="json"), allow_nan=False))

    def points(self) -> Counter[tuple[str, float]]:
        """Number of data points of each metric and value."""
        return Counter((datum.metric, datum.value) for datum in self.data)

    def kept(self) -> dict[int, tuple[float | None, dict[str, float]]]:
        """Loss and further figures of the steps that are stored for the record."""
        return {step.step: (step.loss, dict(step.metrics)) for step in recording.kept_steps(RUN.run_id).steps}


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    world = World()
    for name in ("ARTIFACT_BUCKET", "ARTIFACT_PREFIX", "CLUSTER_NAME", "NAMESPACE", "DEPLOYMENT"):
        monkeypatch.setenv(name, "twin")
    monkeypatch.setattr(objects, "read_tagged", world.read)
    monkeypatch.setattr(objects, "write_if_same", world.write)
    monkeypatch.setattr(metrics, "publish", world.publish)
    yield world


def of_line(step: int) -> Counter[tuple[str, float]]:
    return Counter({("StepLoss", float(step)): 1, ("LearningRate", 4e-4): 1, ("Throughput", 200.0): 1})


def test_a_poll_that_ends_between_line_and_report_loses_and_doubles_no_figure(world: World) -> None:
    log = [metrics_line(1, norm=" grad-norm : 3.5"), report(1, grad_norm=3.5, mfu_percent=30.0, mlm_loss=0.5)]
    cursor = world.poll(log[:1])
    assert (cursor.last_step, cursor.figures_before_report) == (1, ("grad_norm",)), "the step does not wait"
    assert world.points() == of_line(1) + Counter({("GradientNorm", 3.5): 1})
    for _ in range(2):  # the second call is repeated, because the first one did not answer
        cursor_after = world.poll(log, cursor)
        assert (cursor_after.last_step, cursor_after.figures_before_report, cursor_after.datapoints) == (1, None, 1)
        further = {("GradientNorm", 3.5): 1, ("ModelFlopsUtilization", 30.0): 1, ("mlm_loss", 0.5): 1}
        assert world.points() == of_line(1) + Counter(further)
    assert world.kept() == {1: (1.0, {"grad_norm": 3.5, "mfu_percent": 30.0, "mlm_loss": 0.5})}


def test_a_report_is_not_lost_if_the_poll_of_its_line_did_not_answer(world: World) -> None:
    log = [metrics_line(1), report(1, mfu_percent=30.0)]
    world.poll(log[:1])
    cursor = world.poll(log)
    assert (cursor.last_step, cursor.figures_before_report, cursor.datapoints) == (1, None, 1)
    assert world.points() == of_line(1) + Counter({("ModelFlopsUtilization", 30.0): 1})
    assert world.kept() == {1: (1.0, {"mfu_percent": 30.0})}


def test_a_restarted_job_that_repeats_a_step_completes_it_once(world: World) -> None:
    first = world.poll([metrics_line(1), report(1, mfu_percent=30.0), metrics_line(2)])
    again = [metrics_line(1), report(1, mfu_percent=31.0), metrics_line(2), report(2, mfu_percent=32.0)]
    cursor = world.poll(again[:3], first, pod="next")
    assert cursor.figures_before_report == (), "its first report is still to come"
    cursor = world.poll(again, cursor, pod="next")
    world.poll([*again, metrics_line(2), report(2, mfu_percent=33.0)], cursor, pod="next")
    of_reports = Counter({("ModelFlopsUtilization", value): 1 for value in (30.0, 32.0)})
    assert world.points() == of_line(1) + of_line(2) + of_reports


def test_a_late_report_of_an_earlier_step_is_a_sign_of_life_and_no_step(world: World) -> None:
    log = [metrics_line(1), metrics_line(2), report(1, mfu_percent=30.0), report(2, mfu_percent=31.0)]
    cursor = world.poll(log)
    assert (cursor.last_step, cursor.datapoints, cursor.figures_before_report) == (2, 2, None)
    assert world.points() == of_line(1) + of_line(2) + Counter({("ModelFlopsUtilization", 31.0): 1})
    alone = world.poll([*log, report(2, mfu_percent=32.0)], cursor)
    assert alone.progressed_at is not None
    assert cursor.progressed_at is not None
    assert alone.progressed_at > cursor.progressed_at
    assert world.points()["ModelFlopsUtilization", 32.0] == 0


def lines(program: str, step: int, reports: bool) -> list[LogLine]:
    """What a program of one of three kinds prints of a step."""
    if program == "reports only":
        return [report(step, sequences_per_second=200.0, accuracy=step)]
    other = [LogLine(NOW, "a warning about the loss")] if program == "lines, others and reports" else []
    return [metrics_line(step), *other, *([report(step, accuracy=step)] if reports else [])]


@pytest.mark.parametrize("program", ["lines and reports", "lines, others and reports", "reports only"])
@settings(deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    reporting=st.lists(st.booleans(), min_size=1, max_size=8),
    polls=st.lists(st.tuples(st.integers(0, 25), st.sampled_from(["answers", "dies", "is lost"])), max_size=8),
)
def test_every_figure_of_every_step_is_published_once_whatever_is_cut_repeated_or_lost(
    world: World, program: str, reporting: list[bool], polls: list[tuple[int, str]]
) -> None:
    world.__init__()  # type: ignore[misc]
    log = [line for step, reports in enumerate(reporting, start=1) for line in lines(program, step, reports)]
    cursor = MetricsCursor()
    for end, fate in [*sorted(polls, key=lambda poll: poll[0]), (len(log), "answers")]:
        after = world.poll(log[:end], cursor)
        cursor = {"answers": after, "dies": cursor, "is lost": MetricsCursor()}[fate]
    reported = [step for step, reports in enumerate(reporting, start=1) if reports or program == "reports only"]
    expected = sum((of_line(step) for step in range(1, len(reporting) + 1)), Counter[tuple[str, float]]())
    assert world.points() == expected + Counter({("accuracy", step): 1 for step in reported})
    assert world.kept() == {
        step: (float(step), {"accuracy": step} if step in reported else {}) for step in range(1, len(reporting) + 1)
    }
    assert (cursor.datapoints, cursor.last_step) == (len(reporting), len(reporting))
