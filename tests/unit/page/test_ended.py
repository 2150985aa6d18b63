"""Ended runs as the page shows them, from their records."""

from __future__ import annotations

from recorded_runs import recorded

from trainflow.record.run_states import state_of_record
from trainflow.workflow.run_record import Job, Pod, RunRecord

RECORD = recorded("succeeded").record()


def pods_of(job: Job) -> list[tuple[str, str, int]]:
    """Name, phase and index of each pod that is shown of a run with one job."""
    record: RunRecord = RECORD.model_copy(update={"jobs": {"training": job}})
    return [(pod.name, pod.phase, pod.index) for pod in state_of_record(record, ()).pods]


def test_of_a_job_whose_pods_nobody_watched_the_pod_of_rank_0_is_shown() -> None:
    job = Job(name="a-training-1", phase="Succeeded", rank0="a-training-1-0-x")
    assert pods_of(job) == [("a-training-1-0-x", "Succeeded", 0)]


def test_beside_failed_pods_the_phase_of_rank_0s_pod_is_not_known() -> None:
    failed = Pod(name="a-training-1-1-y", phase="Failed", exit_code=1)
    job = Job(name="a-training-1", phase="Failed", pods=[failed], rank0="a-training-1-0-x")
    assert pods_of(job) == [("a-training-1-0-x", "Unknown", 0), ("a-training-1-1-y", "Failed", 1)]


def test_rank_0s_pod_is_shown_once() -> None:
    failed = Pod(name="a-training-1-0-x", phase="Failed", exit_code=1)
    job = Job(name="a-training-1", phase="Failed", pods=[failed], rank0="a-training-1-0-x")
    assert pods_of(job) == [("a-training-1-0-x", "Failed", 0)]
