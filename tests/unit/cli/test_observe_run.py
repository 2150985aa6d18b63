"""The observer as a whole, against fakes of Step Functions, CloudWatch and the cluster."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError
from fake_cluster import FakeCluster, FakeLog, event, finished_pod, running_pod
from polling import eventually
from recorded_runs import RecordedRun, recorded, statistics_of
from test_observe_executions import FakeStepFunctions

from tests.waiting import PATIENCE
from tests.wording import wording
from trainflow.client.observe.observer import RunObserver
from trainflow.observed.step import Step
from trainflow.protocol.staging_line import StagingReport
from trainflow.workflow.run_record import RunError, RunStatus


class FakeCloudWatch:
    """Holds these data."""

    def __init__(self, data: list[Step]) -> None:
        self.data = data
        self.refusal: ClientError | None = None

    def get_metric_statistics(self, *, StartTime: datetime, EndTime: datetime, Period: int, **_: Any) -> dict[str, Any]:
        if self.refusal is not None:
            raise self.refusal
        inside = [datum for datum in self.data if StartTime <= datum.logged_at < EndTime]
        return {
            "Datapoints": [
                {"Timestamp": one.start, "SampleCount": float(one.sample_count), "Sum": one.total}
                for one in statistics_of(inside, period_seconds=Period)
            ]
        }


class Observed:
    """A recorded run that is observed while the test lets it go on."""

    def __init__(self, run: RecordedRun, log_dir: Path) -> None:
        self.run = run
        self.cluster = FakeCluster()
        self.stepfunctions = FakeStepFunctions(run)
        self.cloudwatch = FakeCloudWatch(run.lines)
        self.log_dir = log_dir
        self.age = timedelta()
        self.observer = RunObserver(
            stepfunctions=self.stepfunctions,  # type: ignore[arg-type]
            cloudwatch=self.cloudwatch,  # type: ignore[arg-type]
            run_id=run.run_id,
            execution_arn=run.history.arn,
            deployment="twin",
            log_dir=log_dir,
            poll_seconds=0.01,
            pods=self.cluster,
            clock=lambda: run.end + self.age,
        )

    def show(self, num_events: int | None = None) -> None:
        """Lets the executions' events be seen, all of them by default."""
        for arn in self.stepfunctions.visible:
            self.stepfunctions.visible[arn] = num_events if num_events is not None else 10**6


@pytest.fixture
def observed(tmp_path: Path) -> Iterator[Observed]:
    observed = Observed(recorded("succeeded"), tmp_path / "logs")
    yield observed
    for log in observed.cluster.logs.values():
        log.end()
    observed.observer.stop()


def stamped(lines: tuple[str, ...]) -> list[str]:
    start = datetime(2026, 11, 21, 9, 31, 0)
    return [
        f"{(start + timedelta(seconds=number / 3)).isoformat(timespec='microseconds')}Z {line}\n"
        for number, line in enumerate(lines)
    ]


def test_a_run_is_observed_from_its_first_event_to_its_record(observed: Observed) -> None:
    run, cluster = observed.run, observed.cluster
    log = cluster.logs.setdefault("train-0", FakeLog())
    observed.show(20)
    observed.observer.start()
    stream = cluster.watches.get(timeout=PATIENCE)

    stream.lines.put(event("ADDED", running_pod("train-0")))
    log.write(*stamped(run.log[:52]))
    eventually(lambda: len(observed.observer.snapshot().steps) == 50)
    snapshot = observed.observer.snapshot()
    assert (snapshot.status, snapshot.total_steps) == (RunStatus.RUNNING, 200)
    assert [pod.name for pod in snapshot.pods] == ["train-0"]
    assert snapshot.log_tail == ("train-0", run.log[32:52])

    log.write(*stamped(run.log)[52:])
    log.end()
    stream.lines.put(event("MODIFIED", finished_pod("train-0")))
    stream.lines.put(event("DELETED", finished_pod("train-0")))
    observed.show()
    eventually(lambda: observed.observer.snapshot().status is RunStatus.SUCCEEDED)
    observed.observer.stop()

    record = observed.observer.record()
    assert (observed.log_dir / "train-0.log").read_text().splitlines() == list(run.log)
    assert record.status is RunStatus.SUCCEEDED
    assert record.training is not None
    assert (record.training.steps, record.training.last_loss) == (200, 6.3264)
    assert record.metrics_published is not None
    assert record.metrics_published.model_dump() == {
        "datapoints": 200,
        "first_step": 1,
        "last_step": 200,
        "gaps": 0,
        "duplicates": 0,
        "log_rotations": 0,
        "moved": 0,
        "dropped": 0,
        "non_finite": 0,
        "unparsable_lines": 0,
    }
    assert [execution.arn for execution in record.executions] == [
        run.history.arn,
        *(child.arn for child in run.children),
    ]


def test_a_run_has_its_states_as_soon_as_it_has_a_start(observed: Observed) -> None:
    """Reading the watch windows takes a while, in which others ask for snapshots."""
    known, child = [], observed.run.children[0].arn
    asked = observed.stepfunctions.paginate

    def paginate(**question: Any) -> Iterator[dict[str, Any]]:
        if question["executionArn"] == child:
            known.append(observed.observer.snapshot())
        return asked(**question)

    observed.stepfunctions.paginate = paginate  # type: ignore[method-assign]
    observed.show()
    observed.observer.start()
    eventually(lambda: observed.observer.snapshot().started_at is not None)

    assert [(snapshot.started_at, snapshot.states) for snapshot in known][:1] == [(None, ())]
    assert observed.observer.snapshot().states


def test_lines_that_come_before_the_spec_are_read_as_the_spec_says(tmp_path: Path) -> None:
    """A run that is watched later on has a long log already, which may arrive before the first answer on its spec."""
    run = recorded("succeeded")
    started = run.history.events[0]
    spec = json.loads(started["executionStartedEventDetails"]["input"])
    told = json.dumps({**spec, "progress": {"pattern": r"step (?P<step>\d+) loss (?P<loss>\S+)"}})
    first = {**started, "executionStartedEventDetails": {"input": told}}
    history = replace(run.history, events=(first, *run.history.events[1:]))
    observed = Observed(replace(run, history=history), tmp_path / "logs")
    log = observed.cluster.logs.setdefault("train-0", FakeLog())
    log.write(*stamped(("step 1 loss 9.5", "step 2 loss 9.25")))
    observed.cluster.pods["train-0"] = running_pod("train-0")
    observed.observer.start()
    try:
        eventually(lambda: (observed.log_dir / "train-0.log").read_text().count("\n") == 2)
        assert observed.observer.snapshot().steps == ()
        observed.show(20)
        eventually(lambda: [step.loss for step in observed.observer.snapshot().steps] == [9.5, 9.25])
    finally:
        log.end()
        observed.observer.stop()


def test_without_a_right_to_read_the_spec_lines_are_read_by_their_form(observed: Observed) -> None:
    refused = {"Code": "AccessDeniedException", "Message": "User x is not authorized"}
    observed.stepfunctions.refusal = ClientError({"Error": refused}, "GetExecutionHistory")
    observed.cluster.logs.setdefault("train-0", FakeLog()).write(*stamped(observed.run.log[:7]))
    observed.cluster.pods["train-0"] = running_pod("train-0")
    observed.observer.start()
    eventually(lambda: len(observed.observer.snapshot().steps) == 5)


def test_only_the_training_jobs_rank_0_gives_steps(observed: Observed) -> None:
    observed.show(20)
    observed.observer.start()
    stream = observed.cluster.watches.get(timeout=PATIENCE)
    for name, stage, index in (("pre-0", "precompile", 0), ("train-1", "training", 1)):
        log = observed.cluster.logs.setdefault(name, FakeLog())
        log.write(*stamped(observed.run.log[:5]))
        stream.lines.put(event("ADDED", running_pod(name, stage=stage, index=index)))

    eventually(lambda: all((observed.log_dir / f"{name}.log").exists() for name in ("pre-0", "train-1")))
    eventually(lambda: (observed.log_dir / "train-1.log").read_text().count("\n") == 5)

    assert observed.observer.snapshot().steps == ()


def test_of_a_large_gang_only_rank_0_and_failed_pods_are_followed(observed: Observed) -> None:
    for index in range(20):
        name = f"train-{index:02d}"
        observed.cluster.pods[name] = running_pod(name, index=index)
        observed.cluster.pods[name]["status"] = {"phase": "Pending"}
    observed.observer.start()
    stream = observed.cluster.watches.get(timeout=PATIENCE)

    for index in range(20):
        stream.lines.put(event("MODIFIED", running_pod(f"train-{index:02d}", index=index)))
    log = observed.cluster.logs.setdefault("train-07", FakeLog())
    log.write(*stamped(("last words",)))
    log.end()
    stream.lines.put(event("MODIFIED", finished_pod("train-07", index=7, exit_code=1)))

    eventually(lambda: observed.observer.snapshot().last_lines == {"train-07": ("last words",)})
    assert {path.name for path in observed.log_dir.glob("*.log")} == {"train-00.log", "train-07.log"}


def test_how_far_staging_is_is_known_while_its_pod_runs(observed: Observed) -> None:
    observed.show(20)
    observed.observer.start()
    stream = observed.cluster.watches.get(timeout=PATIENCE)
    log = observed.cluster.logs.setdefault("stage", FakeLog())
    stream.lines.put(event("ADDED", running_pod("stage", stage="stage")))
    log.write(*stamped(("STAGE 4/9 bytes 0 files 2 B/s", "Unpacking.", "STAGE 6/9 bytes 1 files 2 B/s", "Still.")))
    expected = StagingReport(done_bytes=6, total_bytes=9, files=1, bytes_per_second=2)
    eventually(lambda: observed.observer.snapshot().staging == expected)
    stream.lines.put(event("MODIFIED", finished_pod("stage", stage="stage")))
    eventually(lambda: observed.observer.snapshot().staging is None)


def test_a_run_that_is_given_up_is_recorded_with_what_was_seen(observed: Observed) -> None:
    observed.show(40)
    observed.observer.start()
    eventually(lambda: observed.observer.snapshot().states)
    observed.observer.stop()
    stopped = RunError(name="Aborted", message="Stopped.", what_to_do="Start again.")

    record = observed.observer.record(status=RunStatus.ABORTED, error=stopped)

    assert (record.status, record.error) == (RunStatus.ABORTED, stopped)
    assert record.ended_at is not None
    assert record.metrics_published is None


@pytest.mark.parametrize("age", [timedelta(), timedelta(hours=4)], ids=["at once", "when only minutes are kept"])
def test_a_missing_datum_in_cloudwatch_gets_into_the_record(observed: Observed, age: timedelta) -> None:
    observed.age = age
    observed.cloudwatch.data = observed.run.lines[1:]
    observed.show()
    log = observed.cluster.logs.setdefault("train-0", FakeLog())
    log.write(*stamped(observed.run.log))
    log.end()
    observed.cluster.pods["train-0"] = finished_pod("train-0")
    observed.observer.start()
    eventually(lambda: len(observed.observer.steps()) == 200)
    observed.observer.stop()

    published = observed.observer.record().metrics_published

    assert published is not None
    assert (published.datapoints, published.first_step, published.gaps) == (199, 2, 1)


def test_other_programs_are_followed_by_the_times_of_their_log(observed: Observed) -> None:
    observed.show()
    observed.observer.start()
    stream = observed.cluster.watches.get(timeout=PATIENCE)
    lines = ("loading", '{"step": 5, "loss": 2.5, "accuracy": 0.5}', '{"step": 10, "loss": 2.0, "accuracy": 0.6}')
    observed.cluster.logs.setdefault("train-0", FakeLog()).write(*stamped(lines))
    stream.lines.put(event("ADDED", running_pod("train-0", stage="training", index=0)))
    eventually(lambda: len(observed.observer.snapshot().steps) == 2)
    first = datetime(2026, 11, 21, 9, 31, 0, 333333, tzinfo=UTC)
    assert observed.observer.snapshot().steps[0] == Step(first, None, 5, 2.5, None, None, {"accuracy": 0.5})


def test_a_log_without_a_step_is_a_warning_in_the_live_view(observed: Observed) -> None:
    observed.show()
    observed.observer.start()
    stream = observed.cluster.watches.get(timeout=PATIENCE)
    observed.cluster.logs.setdefault("train-0", FakeLog()).write(*stamped(("x",) * 200))
    stream.lines.put(event("ADDED", running_pod("train-0", stage="training", index=0)))
    eventually(lambda: bool(observed.observer.snapshot().warnings))
    (warning,) = observed.observer.snapshot().warnings
    assert "progress" in warning


def test_metrics_that_may_not_be_read_back_are_named_in_the_record_with_the_permission(observed: Observed) -> None:
    run, cluster = observed.run, observed.cluster
    said = {"Code": "AccessDenied", "Message": "User x is not authorized"}
    observed.cloudwatch.refusal = ClientError({"Error": said}, "GetMetricStatistics")
    cluster.pods["train-0"] = running_pod("train-0")
    log = cluster.logs.setdefault("train-0", FakeLog())
    log.write(*stamped(run.log))
    log.end()
    observed.show()
    observed.observer.start()
    eventually(lambda: len(observed.observer.snapshot().steps) == 200)
    cluster.pods["train-0"] = finished_pod("train-0")
    observed.observer.stop()

    record = observed.observer.record()
    assert record.status is RunStatus.SUCCEEDED
    assert record.not_checked[-1] == (
        wording(
            "observe_run.metrics_that_may_not_be_read_back_are_named_in_the_record_with_the_permission",
            "GetMetricStatistics",
        )
    )
