"""A run at one moment: the steps that the workflow has stored, and those that its program has printed since."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from fake_cluster import FakeCluster, FakeLog, running_pod
from recorded_runs import RecordedRun, recorded
from test_observe_executions import FakeStepFunctions

from trainflow.client.observe.executions import ExecutionTree
from trainflow.client.observe.glance import glance
from trainflow.errors import ClusterUnavailable
from trainflow.observed.run_state import RunState
from trainflow.protocol.lost_files import LostFile, LostFiles, lost_files_line
from trainflow.record.results import lost_files_warning
from trainflow.record.steps import KeptSteps
from trainflow.workflow.run import LogPosition, MetricsCursor
from trainflow.workflow.run_record import RunStatus

START = datetime(2026, 11, 21, 9, 31, tzinfo=UTC)


@pytest.fixture
def run() -> RecordedRun:
    return recorded("succeeded")


@pytest.fixture
def cluster(run: RecordedRun) -> FakeCluster:
    """A cluster whose training runs and has printed 50 steps, three lines a second."""
    cluster = FakeCluster()
    cluster.pods["train-0"] = running_pod("train-0")
    cluster.logs["train-0"] = FakeLog()
    times = (START + timedelta(seconds=number / 3) for number in range(len(run.log)))
    cluster.logs["train-0"].write(
        *(f"{at:%Y-%m-%dT%H:%M:%S.%f}Z {line}\n" for at, line in zip(times, run.log[:52], strict=False))
    )
    return cluster


def seen(run: RecordedRun, cluster: FakeCluster, kept: KeptSteps | None = None) -> RunState:
    stepfunctions = FakeStepFunctions(run)
    stepfunctions.visible = dict.fromkeys(stepfunctions.visible, 20)
    executions = ExecutionTree(stepfunctions, run.history.arn)  # type: ignore[arg-type]
    executions.read(with_children=False)
    return glance(run.run_id, executions, cluster, kept or KeptSteps())


def stored_up_to(run: RecordedRun, num_steps: int, *, pod: str = "train-0") -> KeptSteps:
    """What the workflow has stored after a poll that found these steps; the log begins with two other lines."""
    steps = run.lines[:num_steps]
    log = LogPosition(pod=pod, since=START, num_lines=num_steps + 2, first_line=0)
    cursor = MetricsCursor(log=log, first_step=1, last_step=steps[-1].step, format_name="trainflow")
    return KeptSteps().extended(steps, cursor)


def test_steps_are_seen_before_the_workflow_has_stored_any(run: RecordedRun, cluster: FakeCluster) -> None:
    found = seen(run, cluster)

    assert found.status is RunStatus.RUNNING
    assert [step.step for step in found.steps] == list(range(1, 51))
    assert found.total_steps == 200


def test_the_log_is_read_on_from_where_the_workflow_has_left_it(run: RecordedRun, cluster: FakeCluster) -> None:
    log = cluster.logs["train-0"]
    log.lines[30] = log.lines[30].replace("step_loss", "already read")

    found = seen(run, cluster, stored_up_to(run, 40))

    assert [step.step for step in found.steps] == list(range(1, 51))
    assert found.steps[28] == run.lines[28], "a line that was read before is not read again"
    assert log.opened_since == ["2026-11-21T09:31:00Z"]


def test_the_log_of_a_restarted_job_is_read_from_its_beginning(run: RecordedRun, cluster: FakeCluster) -> None:
    found = seen(run, cluster, stored_up_to(run, 40, pod="train-0-of-before"))

    assert found.steps[-1].step == 50
    assert cluster.logs["train-0"].opened_since == [None]


def test_a_line_that_is_being_written_waits(run: RecordedRun, cluster: FakeCluster) -> None:
    log = cluster.logs["train-0"]
    log.lines[-1] = log.lines[-1].removesuffix("\n")

    assert seen(run, cluster).steps[-1].step == 49


def test_without_its_log_a_run_has_the_stored_steps_and_the_reason(run: RecordedRun, cluster: FakeCluster) -> None:
    cluster.logs["train-0"].break_after = [5]

    found = seen(run, cluster, stored_up_to(run, 20))

    assert found.steps[-1].step >= 20
    assert found.trouble == str(ClusterUnavailable("connection reset"))


def test_a_log_that_is_gone_is_no_trouble(run: RecordedRun, cluster: FakeCluster) -> None:
    cluster.logs["train-0"].gone = True

    found = seen(run, cluster, stored_up_to(run, 20))

    assert (found.steps[-1].step, found.trouble) == (20, None)


def test_a_log_that_tells_no_step_is_warned_about(run: RecordedRun, cluster: FakeCluster) -> None:
    cluster.logs["train-0"].lines = [f"2026-11-21T09:31:00.000000Z epoch {number}\n" for number in range(300)]

    found = seen(run, cluster)

    assert found.steps == ()
    assert len(found.warnings) == 1


def test_files_that_the_program_lost_are_warned_about_before_the_workflow_has_read_of_them(
    run: RecordedRun, cluster: FakeCluster
) -> None:
    lost = LostFiles(num_files=1, num_bytes=7, largest=(LostFile(name="model.pt", num_bytes=7),))
    cluster.logs["train-0"].lines.append(f"2026-11-21T09:59:00.000000Z {lost_files_line(lost)}\n")
    assert seen(run, cluster).warnings == (lost_files_warning(lost),)


def test_lines_that_cannot_be_read_are_warned_about_those_that_the_workflow_counted_included(
    run: RecordedRun, cluster: FakeCluster
) -> None:
    log = cluster.logs["train-0"]
    for number in (30, 45):  # the workflow has read and counted the first one
        log.lines[number] = log.lines[number].partition("step_loss")[0] + "\n"
    kept = stored_up_to(run, 40)
    kept = kept.extended((), kept.progress.model_copy(update={"lines_unparsable": 1}))

    (warning,) = seen(run, cluster, kept).warnings

    assert warning.startswith("2 lines of rank 0's log look like a step's and cannot be read")
