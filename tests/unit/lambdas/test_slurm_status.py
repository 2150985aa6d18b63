"""Slurm's words for a job, as the workflow understands them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from lambdas.backends.slurm.files import failed_pods
from lambdas.backends.slurm.status import is_over, job_status, pending_reason
from lambdas.logic.departures import PodEvidence
from lambdas.logic.gang_failures import failure
from tests.fakes.slurm import NOW, job_in_queue
from tests.wording import wording
from trainflow.errors import JobDeadlineExceeded, ScriptFailed, TrainflowError, named_errors
from trainflow.observed.job import JobStatus
from trainflow.protocol.slurm_job import JobRecord, NodeRecord
from trainflow.workflow.run import JobPhase, JobRef, Stage

JobCancelled, JobPreempted, NodeLost, WorkerOutOfMemory = map(
    named_errors().__getitem__, ("JobCancelled", "JobPreempted", "NodeLost", "WorkerOutOfMemory")
)

NAME = "bert-0123456789ab-training-1"
REF = JobRef(name=NAME, stage=Stage.TRAINING, attempt=1, num_nodes=2, backend="slurm")


@pytest.mark.parametrize(
    ("states", "phase"),
    [
        ({"PENDING"}, JobPhase.PENDING),
        ({"RUNNING", "CONFIGURING"}, JobPhase.PENDING),
        ({"CONFIGURING"}, JobPhase.PENDING),
        ({"RUNNING"}, JobPhase.RUNNING),
        ({"SUSPENDED"}, JobPhase.RUNNING),
        ({"COMPLETING"}, JobPhase.RUNNING),
        ({"COMPLETED", "COMPLETING"}, JobPhase.RUNNING),
        ({"COMPLETED"}, JobPhase.SUCCEEDED),
        ({"FAILED"}, None),
        ({"CANCELLED"}, None),
    ],
)
def test_each_state_is_a_phase(states: set[str], phase: JobPhase | None) -> None:
    job = job_in_queue(NAME, states=frozenset(states))
    assert job_status(job).phase is phase
    assert is_over(job) == (phase in (None, JobPhase.SUCCEEDED))


def test_a_job_has_started_only_once_it_runs() -> None:
    assert job_status(job_in_queue(NAME, started_at=NOW)).started_at is None  # when Slurm expects it to
    assert job_status(job_in_queue(NAME, states=frozenset({"RUNNING"}), started_at=NOW)).started_at == NOW


@pytest.mark.parametrize(
    ("state", "error", "sentence"),
    [
        ("NODE_FAIL", NodeLost, f"The job '{NAME}' lost node 'n1' (NodeDown)."),
        ("BOOT_FAIL", NodeLost, f"The job '{NAME}' did not start, because node 'n1' did not boot (NodeDown)."),
        ("PREEMPTED", JobPreempted, f"The job '{NAME}' was preempted by a job of higher priority (NodeDown)."),
        ("CANCELLED", JobCancelled, f"The job '{NAME}' was cancelled by the user 'ada' (NodeDown)."),
        ("OUT_OF_MEMORY", WorkerOutOfMemory, f"The job '{NAME}' ran out of memory on one of its nodes (NodeDown)."),
        ("TIMEOUT", JobDeadlineExceeded, f"The job '{NAME}' ran longer than limits.max_duration_hours allows."),
        ("DEADLINE", JobDeadlineExceeded, f"The job '{NAME}' ran longer than limits.max_duration_hours allows."),
    ],
)
def test_each_bad_end_has_its_error(state: str, error: type[TrainflowError], sentence: str) -> None:
    job = job_in_queue(NAME, states=frozenset({state}), reason="NodeDown", failed_node="n1")
    sentence = sentence.replace("(NodeDown)", "(a node that it needs is down: NodeDown)")
    raised = failure(REF, job_status(job, cancelled_by="ada"), [], last_step=3)
    assert type(raised) is error
    assert str(raised) == sentence


@pytest.mark.parametrize(
    ("fields", "node"),
    [
        ({"failed_node": "n1", "nodes": "n[0-1]"}, "node 'n1'"),
        ({"nodes": "n[0-1]"}, "a node of n[0-1]"),
        ({}, "a node"),
    ],
)
def test_a_lost_node_is_named_as_closely_as_slurm_tells(fields: dict[str, str], node: str) -> None:
    lost = job_in_queue(NAME, states=frozenset({"NODE_FAIL"}), started_at=NOW, **fields)
    assert job_status(lost) == JobStatus(
        phase=None,
        failure_reason="NodeLost",
        failure_message=f"lost {node}",
        submitted_at=NOW,
        started_at=NOW,
    )


def test_that_a_program_failed_is_no_reason_of_its_own() -> None:
    failed = {"states": frozenset({"FAILED"}), "reason": "NonZeroExitCode"}
    assert job_status(job_in_queue(NAME, **failed)).failure_message == "ended with an error"
    described = job_in_queue(NAME, **failed, description="task 0 exited")
    assert job_status(described).failure_message == "ended with an error (task 0 exited)"


def test_who_cancelled_a_job_is_not_made_up() -> None:
    raised = failure(REF, job_status(job_in_queue(NAME, states=frozenset({"CANCELLED"}))), [], last_step=3)
    assert str(raised) == f"The job '{NAME}' was cancelled by an unknown user (Slurm does not name one)."


def test_the_first_node_that_failed_is_the_cause_and_gives_the_message() -> None:
    record = JobRecord(
        job_id=1,
        spec_hash="feed",
        exit_code=1,
        started_at=NOW,
        ended_at=NOW,
        nodes=(
            NodeRecord(index=0, node="n0", exit_code=1, message="PeerLost: gone", finished_at=NOW),
            NodeRecord(index=3, node="n3", exit_code=1, message="bad", finished_at=NOW + timedelta(seconds=1)),
            NodeRecord(index=2, node="n2", exit_code=None),
        ),
    )
    printed = {f"{NAME}-3": ("ValueError: bad",)}
    pods = [PodEvidence(pod, printed.get(pod.name, ())) for pod in failed_pods(NAME, record)]
    status = job_status(job_in_queue(NAME, states=frozenset({"FAILED"}), reason="NonZeroExitCode"))
    raised = failure(REF, status, pods, last_step=None)
    assert type(raised) is ScriptFailed
    assert str(raised) == f"Pod '{NAME}-3' on node 'n3' ended with exit code 1 (Error): ValueError: bad"


@pytest.mark.parametrize(
    ("reason", "sentence"),
    [
        ("Resources", "its nodes are used by other jobs: Resources"),
        ("PartitionTimeLimit", "its time limit is above its partition's: PartitionTimeLimit"),
        (
            "ReqNodeNotAvail, UnavailableNodes:n1",
            wording(
                "slurm_status.what_a_job_waits_for_is_shown_as_slurms_reason_and_as_a_sentence",
                "ReqNodeNotAvail",
                "UnavailableNodes",
            ),
        ),
        ("SomethingNew", "SomethingNew"),
        (None, None),
    ],
)
def test_what_a_job_waits_for_is_shown_as_slurms_reason_and_as_a_sentence(
    reason: str | None, sentence: str | None
) -> None:
    assert pending_reason(job_in_queue(NAME, reason=reason)) == sentence


def test_a_reason_that_slurm_repeats_is_shown_once() -> None:
    job = job_in_queue(NAME, reason="ReqNodeNotAvail", description="ReqNodeNotAvail, UnavailableNodes:n[0-1]")
    assert pending_reason(job) == (
        wording("slurm_status.a_reason_that_slurm_repeats_is_shown_once", "ReqNodeNotAvail", "UnavailableNodes")
    )


def test_a_description_of_something_else_is_added_to_the_reason() -> None:
    job = job_in_queue(NAME, reason="Priority", description="behind 3 others")
    assert pending_reason(job) == wording("slurm_status.a_description_of_something_else_is_added_to_the_reason.1", "3")
    longer = job_in_queue(NAME, reason="ReqNodeNotAvail, UnavailableNodes:n1", description="ReqNodeNotAvail")
    assert pending_reason(longer) == (
        wording(
            "slurm_status.a_description_of_something_else_is_added_to_the_reason.2",
            "ReqNodeNotAvail",
            "UnavailableNodes",
        )
    )


def test_nodes_that_boot_are_an_pending_reason_of_their_own() -> None:
    job = job_in_queue(NAME, states=frozenset({"CONFIGURING"}), nodes="trn1-[1-2]", started_at=datetime.now(UTC))
    assert pending_reason(job) == "the nodes trn1-[1-2] are being started"


def test_a_job_that_runs_has_no_pending_reason() -> None:
    assert pending_reason(job_in_queue(NAME, states=frozenset({"RUNNING"}), reason="Priority")) is None
