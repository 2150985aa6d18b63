"""`PublishMetrics` reads a log once, in bounded memory, in as many polls as it takes."""

from __future__ import annotations

import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain, count, repeat
from typing import Any

import pytest
from kubernetes import client
from urllib3.exceptions import ProtocolError

from lambdas.gateways import metrics, objects
from lambdas.handlers import publish_metrics, recording
from lambdas.handlers.publish_metrics import LINES_BETWEEN_DEADLINE_CHECKS
from lambdas.handlers.recording import MAX_STEPS_BYTES
from lambdas.logic import metric_data
from lambdas.logic.step_metrics import MAX_FIGURES_PER_BATCH, next_batch
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import job_ref, run_of, run_on, spec_with
from tests.unit.lambdas.conftest import ARTIFACT_BUCKET, CONTEXT, Aws
from trainflow.deployment.backends import KUBERNETES_KINDS, BackendName
from trainflow.errors import ClusterUnavailable, ServiceUnavailable
from trainflow.observed.step import OWN_FIGURES
from trainflow.protocol.checkpoint_line import CheckpointReport, checkpoint_line, resumed_line
from trainflow.protocol.lost_files import LostFile, LostFiles, lost_files_line
from trainflow.protocol.metric_aliases import MAX_METRICS
from trainflow.protocol.step_report import report_line
from trainflow.record.placement import Placement
from trainflow.record.steps import KeptSteps
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.metric_names import STEP_FIGURES, PublishedFigure
from trainflow.workflow.run import MetricsCursor, Run

RUN = run_of()
NOW = datetime.now(UTC).replace(microsecond=0)
MIB = 1024 * 1024
OF_CLUSTER = 3
"""Data points of the cluster beside those of a batch."""


def metrics_line(step: int) -> str:
    """One every three seconds, the newest now."""
    at = f"{NOW - timedelta(seconds=3 * step):%a %b %d %H:%M:%S %Y}"
    return f"LOG {at} - (0, {step}) step_loss : {10 - step / 1e4:.4f} learning_rate : 4e-4 throughput : 200.00"


def stamped(text: str) -> str:
    return f"{NOW:%Y-%m-%dT%H:%M:%S}.000000000Z {text}\n"


def poll(cursor: Any = None, *, pod: str = "pod", run: Run | None = None) -> dict[str, Any]:
    event = {
        "run": (run or RUN).model_dump(mode="json"),
        "rank0": pod,
        "cursor": cursor or MetricsCursor().model_dump(mode="json"),
    }
    answer = publish_metrics.lambda_handler(event, CONTEXT)
    return dict(json.loads(json.dumps(answer, allow_nan=False)))


@pytest.fixture
def published(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The steps whose loss was sent, in the order of sending."""
    steps: list[int] = []

    def publish(data: list[Any], *, deployment: str) -> int:
        steps.extend(round((10 - datum.value) * 1e4) for datum in data if datum.metric == "StepLoss")
        return 0

    monkeypatch.setattr(metrics, "publish", publish)
    return steps


@pytest.fixture
def no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publish_metrics, "READING_SECONDS", -1.0)


@pytest.mark.usefixtures("aws", "no_time")
def test_a_poll_without_time_makes_progress_and_the_next_one_continues(
    cluster: FakeKubernetesApi, published: list[int]
) -> None:
    num_steps = 3 * LINES_BETWEEN_DEADLINE_CHECKS + 1
    cluster.logs["pod"] = "".join(stamped(metrics_line(step)) for step in range(1, num_steps + 1))
    cursor, caught_up = None, []
    for _ in range(4):
        answer = poll(cursor)
        cursor = answer["cursor"]
        caught_up.append(answer["caught_up"])
    assert caught_up == [False, False, False, True]
    assert published == list(range(1, num_steps + 1))
    assert cursor["datapoints"] == num_steps


@pytest.mark.usefixtures("aws")
def test_rank_0_in_another_pod_is_read_from_its_beginning(cluster: FakeKubernetesApi, published: list[int]) -> None:
    cluster.logs["first"] = stamped(metrics_line(1)) + stamped(metrics_line(2))
    cluster.logs["second"] = stamped(metrics_line(2)) + stamped(metrics_line(3))
    poll(poll(pod="first")["cursor"], pod="second")
    assert published == [1, 2, 3]


@pytest.mark.usefixtures("aws")
@pytest.mark.parametrize(("backend", "steps"), [("trainjob", [1, 2, 3]), ("jobset", [1])])
def test_rank_0_of_a_job_that_others_suspend_is_read_in_its_newest_pod(
    cluster: FakeKubernetesApi, published: list[int], backend: BackendName, steps: list[int]
) -> None:
    run = run_on(backend)
    job, kind = job_ref(run), KUBERNETES_KINDS[backend]
    labels = {"trainflow/run": run.run_id, "trainflow/stage": "training", "trainflow/job": job.name, **kind.rank0}
    cursor: Any = None
    for number, pod in enumerate((f"{job.name}-node-0-0-first", f"{job.name}-node-0-0-second"), start=1):
        created = (NOW + timedelta(seconds=number)).isoformat()
        metadata = {"name": pod, "labels": labels, "creationTimestamp": created}
        cluster.add("pods", {"metadata": metadata, "spec": {}, "status": {"phase": "Running"}})
        cluster.logs[pod] = "".join(stamped(metrics_line(step)) for step in range(1, 2 * number))
        cursor = poll(cursor, pod=f"{job.name}-node-0-0-first", run=run)["cursor"]
    assert published == steps


@pytest.mark.usefixtures("aws")
def test_a_log_that_was_rotated_between_two_polls_is_counted(cluster: FakeKubernetesApi, published: list[int]) -> None:
    cluster.logs["pod"] = stamped(metrics_line(1)) + stamped(metrics_line(2))
    cursor = poll()["cursor"]
    assert cursor["log_rotations"] == 0
    cluster.logs["pod"] = stamped(metrics_line(5))
    cursor = poll(cursor)["cursor"]
    assert cursor["log_rotations"] == 1
    cluster.logs["pod"] += stamped(metrics_line(6))
    assert poll(cursor)["cursor"]["log_rotations"] == 1
    assert published == [1, 2, 5, 6]


@pytest.mark.usefixtures("aws")
def test_what_was_published_before_a_fault_is_not_published_again(
    cluster: FakeKubernetesApi, published: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    num_steps = MAX_FIGURES_PER_BATCH
    cluster.logs["pod"] = "".join(stamped(metrics_line(step)) for step in range(1, num_steps + 1))
    publish = metrics.publish

    def refuses_the_second(data: list[Any], *, deployment: str) -> int:
        if published:
            raise ServiceUnavailable("throttled")
        return publish(data, deployment=deployment)

    with monkeypatch.context() as patch:
        patch.setattr(metrics, "publish", refuses_the_second)
        answer = poll()
    assert (answer["caught_up"], answer["cursor"]["last_step"]) == (False, len(published))
    assert MAX_FIGURES_PER_BATCH / 3 <= len(published) < num_steps, "a batch was published"
    poll(answer["cursor"])
    assert published == list(range(1, num_steps + 1))


@pytest.mark.usefixtures("aws")
def test_a_window_that_lost_its_position_publishes_no_step_again(
    cluster: FakeKubernetesApi, published: list[int]
) -> None:
    """As after a redrive: the window that was stopped took its position with it, and its job is started again."""
    cluster.logs["pod"] = "".join(stamped(metrics_line(step)) for step in range(1, 11))
    poll()
    cluster.logs["next"] = "".join(stamped(metrics_line(step)) for step in range(5, 8))
    cursor = poll(pod="next")["cursor"]
    assert (cursor["last_step"], cursor["datapoints"]) == (10, 10)
    cluster.logs["next"] += "".join(stamped(metrics_line(step)) for step in range(8, 13))
    again = poll(cursor, pod="next")["cursor"]
    assert (again["last_step"], again["datapoints"]) == (12, 12)
    assert published == list(range(1, 13))


@pytest.mark.usefixtures("aws")
def test_a_log_that_cannot_be_read_at_all_is_worth_a_retry(
    cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    def breaks_off(*_arguments: Any, **_options: Any) -> Any:
        raise ProtocolError("Connection broken")

    monkeypatch.setattr(cluster, "call_api", breaks_off)
    with pytest.raises(ClusterUnavailable, match="Connection broken"):
        poll()

    def is_busy(*_arguments: Any, **_options: Any) -> Any:
        raise client.ApiException(status=503, reason="Service Unavailable")

    monkeypatch.setattr(cluster, "call_api", is_busy)
    with pytest.raises(ClusterUnavailable, match="503"):
        poll()


def test_a_poll_that_dies_before_it_answers_changes_nothing_that_is_read(aws: Aws, cluster: FakeKubernetesApi) -> None:
    cluster.logs["pod"] = "".join(stamped(metrics_line(step)) for step in range(1, 8))

    poll()
    once = charts(aws)
    poll()  # with the same cursor: the first poll did not answer
    assert charts(aws) == once
    assert [each["SampleCount"] for each in once] == 7 * [1.0]
    cluster.logs["pod"] += "".join(stamped(metrics_line(step)) for step in (8, 9))
    cursor = poll()["cursor"]  # once more, and there is more to read
    assert [each["SampleCount"] for each in charts(aws)] == 9 * [1.0]
    assert (cursor["datapoints"], recording.kept_steps(RUN.run_id).progress.datapoints) == (9, 9)


@pytest.mark.parametrize("overwritten", ["", "no JSON", "{}", '{"steps": 5}', "[" * 5000, " " * MAX_STEPS_BYTES + "{}"])
def test_stored_steps_that_a_program_has_overwritten_fail_no_run(
    aws: Aws, cluster: FakeKubernetesApi, published: list[int], overwritten: str
) -> None:
    """Every program of every run may write objects below `runs/`."""
    cluster.logs["pod"] = stamped(metrics_line(1))
    cursor = poll()["cursor"]
    objects.write(ARTIFACT_BUCKET, f"runs/{RUN.run_id}/steps.json", overwritten)
    cluster.logs["pod"] += stamped(metrics_line(2))
    answer = poll(cursor)
    assert answer["caught_up"]
    assert published == [1, 2]
    assert [step.step for step in recording.kept_steps(RUN.run_id).steps] == [2]


def charts(aws: Aws) -> list[dict[str, Any]]:
    """The data points of the loss in CloudWatch, by the second."""
    found = aws.client("cloudwatch").get_metric_statistics(
        Namespace="Trainflow",
        MetricName="StepLoss",
        Dimensions=[{"Name": "Deployment", "Value": "twin"}, {"Name": "RunId", "Value": RUN.run_id}],
        StartTime=NOW - timedelta(minutes=2),
        EndTime=datetime.now(UTC) + timedelta(minutes=2),
        Period=1,
        Statistics=["Average", "Minimum", "Maximum", "SampleCount"],
    )["Datapoints"]
    return sorted(found, key=lambda datapoint: datapoint["Timestamp"])


@pytest.mark.parametrize(("operation", "code"), [("PutMetricData", "AccessDenied"), ("PutObject", "SlowDown")])
def test_what_could_not_be_published_is_a_sign_of_life_and_is_published_later(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None], operation: str, code: str
) -> None:
    cluster.logs["pod"] = "".join(stamped(metrics_line(step)) for step in range(1, 8))
    refusing(operation, code)
    answer = poll()
    assert (answer["caught_up"], answer["unpublished"], answer["cursor"]["last_step"]) == (False, True, None)
    assert answer["cursor"]["progressed_at"] is not None, "the job gets on"
    assert charts(aws) == []
    refusing(operation, None)
    answer = poll(answer["cursor"])
    assert (answer["caught_up"], answer["unpublished"], answer["cursor"]["last_step"]) == (True, False, 7)
    assert [each["SampleCount"] for each in charts(aws)] == 7 * [1.0]
    assert [step.step for step in recording.kept_steps(RUN.run_id).steps] == list(range(1, 8))


def test_data_points_that_cloudwatch_refuses_are_counted_and_hold_up_nothing(
    aws: Aws, cluster: FakeKubernetesApi, refusing: Callable[[str, str | None], None]
) -> None:
    cluster.logs["pod"] = stamped(metrics_line(1))
    refusing("PutMetricData", "InvalidParameterValue")
    cursor = poll()["cursor"]
    assert (cursor["last_step"], cursor["points_dropped"]) == (1, 5)
    assert recording.kept_steps(RUN.run_id).progress.points_dropped == 5


def test_values_that_cloudwatch_does_not_take_are_counted_but_for_losses_which_are_counted_as_such(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    figures = (("nan", "4e-4"), ("1.0", "nan"), ("inf", "inf"), ("1e200", "1e200"), ("1.0", "4e-4"))
    at = f"{NOW:%a %b %d %H:%M:%S %Y}"
    cluster.logs["pod"] = "".join(
        stamped(f"LOG {at} - (0, {step}) step_loss : {loss} learning_rate : {rate} throughput : 9.0")
        for step, (loss, rate) in enumerate(figures, start=1)
    )
    cursor = poll()["cursor"]
    assert (cursor["last_step"], cursor["non_finite_steps"]) == (5, 2)
    assert cursor["points_dropped"] == 4, "the rates of steps 2 to 4, and the loss of step 4"
    assert sum(each["SampleCount"] for each in charts(aws)) == 2


@pytest.mark.usefixtures("aws")
def test_lines_that_cannot_be_read_are_counted_once_and_kept_for_the_record(
    cluster: FakeKubernetesApi, published: list[int]
) -> None:
    cluster.logs["pod"] = stamped(metrics_line(1)[:45]) + stamped("[1]:" + metrics_line(1)[:50])
    first = poll()["cursor"]
    assert (first["lines_unparsable"], first["last_step"]) == (2, None)
    assert recording.kept_steps(RUN.run_id).progress.lines_unparsable == 2
    cluster.logs["pod"] += stamped(metrics_line(2)) + stamped(metrics_line(3)[:45])
    assert poll(first)["cursor"]["lines_unparsable"] == 3
    assert poll(first)["cursor"]["lines_unparsable"] == 3, "a call that is repeated counts no line again"
    assert recording.kept_steps(RUN.run_id).progress.lines_unparsable == 3
    assert published == [2]


def test_times_that_cloudwatch_does_not_take_are_moved_or_dropped_and_counted(
    aws: Aws, cluster: FakeKubernetesApi
) -> None:
    def step_at(step: int, at: datetime) -> str:
        figures = f"step_loss : 1.0 learning_rate : 4e-4 throughput : {step}.00"
        return stamped(f"LOG {at:%a %b %d %H:%M:%S %Y} - (0, {step}) {figures}")

    times = (NOW - timedelta(days=15), NOW, NOW + timedelta(hours=9))
    cluster.logs["pod"] = "".join(step_at(step, at) for step, at in enumerate(times, start=1))
    cursor = poll()["cursor"]
    assert (cursor["last_step"], cursor["points_dropped"], cursor["points_moved"]) == (3, 3, 3)
    assert sum(each["SampleCount"] for each in charts(aws)) == 2


def test_steps_that_a_restarted_job_repeats_are_signs_of_life(aws: Aws, cluster: FakeKubernetesApi) -> None:
    cluster.logs["pod"] = "".join(stamped(metrics_line(step)) for step in range(1, 8))
    long_ago = poll()["cursor"] | {"progressed_at": "2026-11-20T00:00:00Z"}
    cluster.logs["next"] = stamped(metrics_line(5))
    again = poll(long_ago, pod="next")["cursor"]
    assert (again["last_step"], again["progressed_at"] > long_ago["progressed_at"]) == (7, True)
    cluster.logs["third"] = stamped("Loading the checkpoint")
    assert poll(long_ago, pod="third")["cursor"]["progressed_at"] == long_ago["progressed_at"]


def logged(value_of: dict[str, float]) -> str:
    """A step's two lines with these values in their fields."""
    line = (
        f"LOG {NOW:%a %b %d %H:%M:%S %Y} - (0, 1) step_loss : {value_of['loss']} "
        f"learning_rate : {value_of['learning_rate']} throughput : {value_of['throughput']}"
    )
    known = {"step": 1, **{name: value for name, value in value_of.items() if name not in OWN_FIGURES}}
    return stamped(line) + stamped(json.dumps({"trainflow_metrics": known}))


VALUES = {row.name: float(number) for number, row in enumerate(STEP_FIGURES, start=1)}


@pytest.mark.parametrize("row", STEP_FIGURES, ids=lambda row: row.metric.value)
def test_every_row_of_the_table_reaches_cloudwatch(aws: Aws, cluster: FakeKubernetesApi, row: PublishedFigure) -> None:
    cluster.logs["pod"] = logged(VALUES)
    poll()
    found = aws.client("cloudwatch").get_metric_statistics(
        Namespace="Trainflow",
        MetricName=row.metric.value,
        Dimensions=[{"Name": "Deployment", "Value": "twin"}, {"Name": "RunId", "Value": RUN.run_id}],
        StartTime=NOW - timedelta(minutes=1),
        EndTime=NOW + timedelta(minutes=1),
        Period=1,
        Statistics=["Average", "SampleCount"],
    )["Datapoints"]
    assert [(point["Average"], point["SampleCount"], point["Unit"]) for point in found] == [
        (VALUES[row.name], 1, row.unit)
    ]


def test_the_largest_batch_fits_one_call_whatever_the_lines_hold() -> None:
    """Each step has as many figures in its line, and as many others in its report, as are read of a line."""
    lines, names = list[LogLine](), list[str]()
    for step in range(100):
        names = [f"m{number}" for number in range(2 * MAX_METRICS)]
        further = " ".join(f"{name} : 0.5" for name in names[: MAX_METRICS - 4])
        lines.append(LogLine(NOW, f"{metrics_line(step)} {further}"))
        lines.append(LogLine(NOW, report_line({"step": step, **dict.fromkeys(names[MAX_METRICS:-1], 0.5)})))
    for num_lines in (len(lines), *range(10, 30)):
        batch = next_batch(lines[:num_lines], MetricsCursor())
        data = len([*metric_data.of_steps(RUN.run_id, batch.steps, names)]) + OF_CLUSTER
        assert data <= metrics.MAX_DATA_PER_CALL
        assert batch.is_full or len(batch.steps) == (num_lines + 1) // 2


@pytest.mark.parametrize("has_metrics_lines", [True, False], ids=["beside metrics lines", "alone"])
def test_a_batch_of_reports_with_many_figures_fits_one_call(has_metrics_lines: bool) -> None:
    figures = {f"m{number}": 0.5 for number in range(40)}
    lines = []
    for step in range(100):
        lines += [LogLine(NOW, metrics_line(step))] if has_metrics_lines else []
        lines.append(LogLine(NOW, report_line({"step": step, "loss": 1.0, "mfu_percent": 30.0, **figures})))
    batch = next_batch(lines, MetricsCursor())
    of_steps = list(metric_data.of_steps(RUN.run_id, batch.steps, figures))
    assert 500 < len(of_steps) + OF_CLUSTER <= metrics.MAX_DATA_PER_CALL


class Endless:
    """An answer of the API: as many bytes of log as are asked for, made while they are read."""

    def __init__(self, num_bytes: int) -> None:
        block = stamped("x" * 80).encode() * 800
        self._blocks = chain(repeat(block, num_bytes // len(block)), [stamped(metrics_line(1)).encode()])

    def stream(self, _amount: int) -> Iterator[bytes]:
        return iter(self._blocks)

    def release_conn(self) -> None: ...

    def close(self) -> None: ...


def peak_bytes(cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch, num_bytes: int) -> int:
    answers = FakeKubernetesApi(logs={"pod": ""}).call_api
    monkeypatch.setattr(
        cluster,
        "call_api",
        lambda path, *rest, **named: Endless(num_bytes) if path.endswith("/log") else answers(path, *rest, **named),
    )
    tracemalloc.start()
    try:
        poll()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.usefixtures("aws")
@pytest.mark.lengthy
def test_memory_does_not_grow_with_the_log(
    cluster: FakeKubernetesApi, published: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publish_metrics, "READING_SECONDS", 600.0)
    small = peak_bytes(cluster, monkeypatch, MIB)
    large = peak_bytes(cluster, monkeypatch, 16 * MIB)
    assert published == [1], "the step of the second log has been published"
    assert large < small + MIB


@pytest.mark.parametrize("pattern", [False, True])
def test_checkpoints_are_kept_for_the_record_whatever_the_format_of_the_steps(
    aws: Aws, cluster: FakeKubernetesApi, published: list[int], monkeypatch: pytest.MonkeyPatch, pattern: bool
) -> None:
    del aws
    steps = ["at 1 of 9", "at 2 of 9"] if pattern else [metrics_line(1), metrics_line(2)]
    progress = {"pattern": r"^at (?P<step>\d+) of 9$"} if pattern else "auto"
    monkeypatch.setattr(sys.modules[__name__], "RUN", run_of(spec_with(progress=progress)))
    lines = [steps[0], checkpoint_line(1, num_bytes=7), steps[1]]
    cluster.logs["pod"] = "".join(map(stamped, lines))
    cursor = poll()["cursor"]
    cluster.logs["pod"] += stamped("Saving model checkpoint to /runs/bert/checkpoint-2")
    poll(cursor)
    kept = recording.kept_steps(RUN.run_id)
    assert kept.checkpoints == (
        CheckpointReport(step=1, num_bytes=7, saved_at=NOW),
        CheckpointReport(step=2, num_bytes=None, saved_at=NOW),
    )
    assert [step.step for step in kept.steps] == [1, 2]


@pytest.mark.usefixtures("aws")
def test_the_newest_known_checkpoint_is_kept_with_the_position(
    cluster: FakeKubernetesApi, published: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a program that tells no steps it is what shows that it gets on."""
    monkeypatch.setattr(sys.modules[__name__], "RUN", run_of(spec_with(progress="none")))
    cluster.logs["pod"] = stamped("Loading.")
    cursor, numbers = poll()["cursor"], list[int | None]()
    for line in (resumed_line(40), checkpoint_line(60), "Training.", checkpoint_line(50), resumed_line(60)):
        numbers.append(cursor["last_checkpoint"])
        cluster.logs["pod"] += stamped(line)
        cursor = poll(cursor)["cursor"]
    assert (numbers, cursor["last_checkpoint"], published) == ([None, 40, 60, 60, 60], 60, [])


@pytest.mark.usefixtures("aws")
def test_steps_without_a_finite_loss_are_counted_across_polls(
    cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metrics, "publish", lambda data, deployment: 0)
    cluster.logs["pod"] = stamped(metrics_line(1)) + stamped(metrics_line(2).replace("9.9998", "nan"))
    cursor = poll()["cursor"]
    assert (cursor["non_finite_steps"], cursor["first_non_finite_step"]) == (1, 2)
    cluster.logs["pod"] += stamped(metrics_line(3).replace("9.9997", "inf"))
    cursor = poll(cursor)["cursor"]
    assert (cursor["non_finite_steps"], cursor["first_non_finite_step"]) == (2, 2)


def test_a_poll_that_a_stop_has_overtaken_leaves_what_the_clean_up_has_stored(
    aws: Aws, cluster: FakeKubernetesApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.logs["pod"] = "".join(stamped(metrics_line(step)) for step in range(1, 4))
    further = "".join(stamped(metrics_line(step)) for step in range(1, 6))
    placement = Placement(nodes=("n1",), started_at=NOW, ended_at=NOW)

    publish = metrics.publish

    def overtaken(data: list[Any], *, deployment: str) -> int:
        monkeypatch.setattr(metrics, "publish", publish)
        cluster.logs["pod"] = further
        assert poll()["cursor"]["last_step"] == 5
        recording.keep(RUN.run_id, recording.stored_steps(RUN.run_id), lambda kept: replace(kept, placement=placement))
        return publish(data, deployment=deployment)

    monkeypatch.setattr(metrics, "publish", overtaken)
    assert poll()["cursor"]["last_step"] == 3
    kept = recording.kept_steps(RUN.run_id)
    assert (kept.placement, kept.progress.last_step) == (placement, 5)
    assert [step.step for step in kept.steps] == [1, 2, 3, 4, 5]
    assert charts(aws)


@pytest.mark.usefixtures("aws")
def test_stored_steps_that_change_all_the_time_are_not_overwritten() -> None:
    recording.keep(RUN.run_id, recording.stored_steps(RUN.run_id), lambda kept: kept)
    times = count(1)

    def disturbed(kept: KeptSteps) -> KeptSteps:
        every = 2 ** next(times)
        recording.keep(RUN.run_id, recording.stored_steps(RUN.run_id), lambda other: replace(other, every=every))
        return kept

    with pytest.raises(ServiceUnavailable, match=r"steps\.json.*written.* 5 times"):
        recording.keep(RUN.run_id, recording.stored_steps(RUN.run_id), disturbed)
    assert recording.kept_steps(RUN.run_id).every == 32


@pytest.mark.usefixtures("aws", "published")
def test_lost_files_are_in_the_position_and_stored_for_the_record(cluster: FakeKubernetesApi) -> None:
    lost = LostFiles(num_files=2, num_bytes=7, largest=(LostFile(name="model.pt", num_bytes=6),))
    cluster.logs["pod"] = stamped(lost_files_line(lost))
    cursor = MetricsCursor.model_validate(poll()["cursor"])
    assert cursor.lost_files == recording.kept_steps(RUN.run_id).progress.lost_files == lost
    cluster.logs["pod"] += stamped("bye")
    assert MetricsCursor.model_validate(poll(cursor.model_dump(mode="json"))["cursor"]).lost_files == lost
