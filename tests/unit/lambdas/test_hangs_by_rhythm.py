"""A job that breaks its rhythm is ended only if all its nodes report that their ranks stand still."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from lambdas.handlers import poll_job
from lambdas.logic.hangs import breaks_rhythm, hung_at
from lambdas.logic.jobs import job_of
from tests.fakes.kubernetes_api import FakeKubernetesApi
from tests.fakes.runs import STARTED_AT, run_of, spec_with
from tests.unit.failures.stacks import BEHIND, WAITS_FOR_OTHERS, gang
from tests.unit.lambdas.conftest import CONTEXT
from tests.unit.lambdas.test_backends import add_pod, stored, submit
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.errors import TrainflowError
from trainflow.failures.judgement import from_text
from trainflow.observed.job import JobStatus
from trainflow.protocol.ended_ranks import LINE
from trainflow.protocol.stacks import NodeStacks, stacks_line
from trainflow.workflow.run import HungAt, JobPhase, JobRef, MetricsCursor, Stage

JOB = JobRef(name="bert-training-1", stage=Stage.TRAINING, attempt=1, num_nodes=2)
STATUS = JobStatus(phase=JobPhase.RUNNING, started_at=STARTED_AT)
NOW = STARTED_AT + timedelta(hours=5)


def cursor(*, interval: float = 1.0, silent: float, pause: float = 30.0, **values: Any) -> MetricsCursor:
    """A run of 101 steps whose newest one is some seconds old."""
    newest = NOW - timedelta(seconds=silent)
    known = {"datapoints": 101, "last_step": 101, "progressed_at": newest, "longest_pause_seconds": pause}
    return MetricsCursor(**{**known, "first_step_at": newest - 100 * timedelta(seconds=interval), **values})


@pytest.mark.parametrize(
    ("progress", "breaks"),
    [
        (cursor(silent=119), False),
        (cursor(silent=121), True),
        (cursor(interval=10, silent=199), False),
        (cursor(interval=10, silent=201), True),
        (cursor(silent=700, pause=400), False),
        (cursor(silent=801, pause=400), True),
        (cursor(silent=500, changed_at=NOW - timedelta(seconds=60)), False),
        (cursor(silent=500, datapoints=2), False),
        (cursor(silent=timedelta(hours=6).total_seconds()), False),
        (MetricsCursor(), False),
    ],
)
def test_a_run_breaks_its_rhythm_after_many_usual_intervals(progress: MetricsCursor, breaks: bool) -> None:
    assert breaks_rhythm(JOB, STATUS, progress, now=NOW) is breaks


@pytest.mark.parametrize(
    "job",
    [JOB.model_copy(update={"min_nodes": 1}), JOB.model_copy(update={"stage": Stage.PRECOMPILE})],
    ids=["elastic", "precompile"],
)
def test_jobs_without_a_rhythm_of_their_own_are_not_judged(job: JobRef) -> None:
    assert not breaks_rhythm(job, STATUS, cursor(silent=5000), now=NOW)


Poll = Callable[..., Any]


@pytest.fixture
def poll(cluster: FakeKubernetesApi, aws: None) -> Poll:
    """The phase of a job whose pods end their logs with some lines, and whose newest step is some seconds old."""

    def phase(*logs: NodeStacks | str, silent: float = 150.0, **progress: Any) -> Any:
        run, now = run_of(spec_with(compute__num_nodes=len(logs))), datetime.now(UTC)
        job = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://artifacts/")
        submit(job)
        ready = {"active": len(logs), "ready": len(logs), "startTime": (now - timedelta(hours=3)).isoformat()}
        stored(cluster, job)["status"] = ready
        for index, log in enumerate(logs):
            labels = KUBERNETES_KINDS["job"].rank0 if index == 0 else {}
            state = {"running": {"startedAt": (now - timedelta(hours=3)).isoformat()}}
            add_pod(
                cluster, job, f"pod-{index}", {"phase": "Running", "containerStatuses": [{"state": state}]}, **labels
            )
            text = log if isinstance(log, str) else stacks_line(log)
            cluster.logs[f"pod-{index}"] = f"{(now - timedelta(minutes=1)).isoformat()} {text}\n"
        newest = now - timedelta(seconds=silent)
        begin = newest - timedelta(seconds=100)
        seen = {"datapoints": 101, "last_step": 20, "progressed_at": newest, "first_step_at": begin, **progress}
        event = {
            "run": run.model_dump(mode="json"),
            "job": job.ref.model_dump(mode="json"),
            "progress": MetricsCursor(**seen).model_dump(mode="json"),
        }
        return poll_job.lambda_handler({**event, "phase": "running"}, CONTEXT)["phase"]

    return phase


SLEEPS = BEHIND["sleeps"]
STILL = gang(SLEEPS.group, WAITS_FOR_OTHERS, 3, position=1)
ALL_WAIT = gang(WAITS_FOR_OTHERS, WAITS_FOR_OTHERS, 3)
MOVES = NodeStacks(node=0, processes=1, seconds=0)


def hang(poll: Poll, *logs: NodeStacks | str, **values: Any) -> TrainflowError:
    with pytest.raises(TrainflowError) as error:
        poll(*logs, **values)
    return error.value


def test_a_gang_that_stands_still_is_ended_with_the_rank_behind_and_its_place(poll: Poll) -> None:
    error = hang(poll, *STILL)
    assert type(error).__name__ == "JobStalled"
    assert "has logged no step after 20 for 2 min 30 s; until then one came every 1.0 s." in str(error)
    assert f"Rank 1 sleeps at {SLEEPS.place}, while 2 other ranks wait in all_reduce at train.py:31" in str(error)
    assert error.judgement is not None
    assert (error.judgement.rule, error.judgement.line) == ("hang", SLEEPS.place)
    assert error.judgement.pod == "pod-1"
    assert error.judgement.node is None


@pytest.mark.parametrize("moving", range(3))
@pytest.mark.parametrize("log", [MOVES, "evaluated 3 of 5"], ids=["took it back", "reported nothing"])
def test_a_gang_of_that_one_node_moves_lives(poll: Poll, moving: int, log: NodeStacks | str) -> None:
    logs: list[NodeStacks | str] = [*STILL]
    logs[moving] = log
    assert poll(*logs) == "running"


def test_a_gang_that_waits_for_a_node_whose_ranks_have_ended_is_ended(poll: Poll) -> None:
    first, *_ = STILL
    assert "ended with exit code 0" in str(hang(poll, first, LINE))


def test_a_gang_that_keeps_its_rhythm_lives(poll: Poll) -> None:
    assert poll(*STILL, silent=100) == "running"


def test_the_hard_limit_has_the_verdict_as_well(poll: Poll) -> None:
    error = hang(poll, *STILL, silent=7200, datapoints=1)
    assert "has not logged a step after 20 for 60 minutes" in str(error)
    assert f"Rank 1 sleeps at {SLEEPS.place}" in str(error)


def test_the_hard_limit_does_not_need_stacks(poll: Poll) -> None:
    error = hang(poll, "", MOVES, silent=7200)
    assert (type(error).__name__, error.judgement) == ("JobStalled", None)


def test_a_gang_that_stops_twice_at_one_step_and_place_is_the_programs_fault(poll: Poll) -> None:
    error = hang(poll, *STILL, hung_at=HungAt(step=20, place=SLEEPS.place))
    assert type(error).__name__ == "ProgramHangs"
    message, _ = from_text(str(error))
    assert message.startswith(f"Two attempts in a row have stopped after step 20 at {SLEEPS.place}. The job ")
    assert error.judgement is not None
    assert error.judgement.pod == "pod-1"


@pytest.mark.parametrize(
    "before",
    [HungAt(step=19, place=SLEEPS.place), HungAt(step=20, place="data.py:5 in sample"), HungAt(step=19)],
    ids=["another step", "another place", "another step, and no stacks then"],
)
def test_a_gang_that_stops_elsewhere_is_restarted(poll: Poll, before: HungAt) -> None:
    assert type(hang(poll, *STILL, hung_at=before)).__name__ == "JobStalled"


def test_the_step_decides_if_the_attempt_before_had_no_stacks(poll: Poll) -> None:
    assert type(hang(poll, *STILL, hung_at=HungAt(step=20))).__name__ == "ProgramHangs"


def test_the_step_decides_if_the_newest_attempt_has_no_stacks(poll: Poll) -> None:
    again = hang(poll, "", MOVES, silent=7200, hung_at=HungAt(step=20, place=SLEEPS.place))
    assert type(again).__name__ == "ProgramHangs"


def test_a_gang_whose_ranks_all_wait_before_a_step_is_restarted(poll: Poll) -> None:
    """The network may be at fault: the second attempt has not come to the step."""
    place = "train.py:31 in main: dist.all_reduce(loss)"
    error = hang(poll, *ALL_WAIT, silent=14400, hung_at=HungAt(step=20, place=place))
    assert type(error).__name__ == "JobStalled"
    again = hang(poll, *ALL_WAIT, hung_at=HungAt(step=20, place=place))
    assert type(again).__name__ == "ProgramHangs", "it has repeated the steps before"


def test_a_node_of_several_ranks_is_judged_by_all_of_them(poll: Poll) -> None:
    (node,) = gang(SLEEPS.group, WAITS_FOR_OTHERS, 3, per_node=8, position=2)
    assert "Rank 2 sleeps" in str(hang(poll, node))
    (gone,) = gang(None, WAITS_FOR_OTHERS, 3, per_node=8, position=2)
    assert "Rank 2 has ended, and the others wait in all_reduce" in str(hang(poll, replace(gone, node=0)))


@pytest.mark.parametrize(
    ("error", "remembered"),
    [("JobStalled", HungAt(step=20, place="train.py:7 in main")), ("WorkerFailed", None), ("CollectiveTimeout", None)],
)
def test_only_the_place_of_a_hang_is_remembered_for_the_next_attempt(error: str, remembered: HungAt | None) -> None:
    assert hung_at(error, "train.py:7 in main", MetricsCursor(last_step=20)) == remembered
