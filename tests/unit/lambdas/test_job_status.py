"""How far a job is, read from what real controllers wrote."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from lambdas.backends.registry import KINDS
from trainflow.deployment.backends import BackendName
from trainflow.observed.job import JobStatus
from trainflow.workflow.run import JobPhase, JobRef, Stage

RECORDINGS = Path("packages/kubetwin/tests/recordings")
SUBMITTED_AT = "2026-11-21T03:35:30Z"
STARTED_AT = "2026-11-21T03:36:00Z"


def status(backend: BackendName, wrote: dict[str, Any], *, num_nodes: int = 2, **fields: Any) -> JobStatus:
    ref = JobRef(name="x", stage=Stage.TRAINING, attempt=1, num_nodes=num_nodes, backend=backend, **fields)
    return KINDS[backend].status(ref, {"metadata": {"creationTimestamp": SUBMITTED_AT}, "status": wrote})


def recorded(scenario: str, kind: str) -> list[dict[str, Any]]:
    """Every status of the scenario's job, as it was watched: in its order, from the first to the last."""
    steps = json.loads((RECORDINGS / f"{scenario}.json").read_text())["steps"]
    streams = [step["response"].get("events", []) for step in steps]
    longest = max(streams, key=len)
    found = [event["object"].get("status", {}) for event in longest if event["object"].get("kind") == kind]
    assert found, "the scenario watches the job"
    return found


def phases(backend: BackendName, scenario: str, kind: str, num_nodes: int = 2) -> list[JobPhase | None]:
    """What is seen, each phase once."""
    seen = [status(backend, wrote, num_nodes=num_nodes).phase for wrote in recorded(scenario, kind)]
    return [phase for index, phase in enumerate(seen) if index == 0 or seen[index - 1] != phase]


PENDING, RUNNING, SUCCEEDED, FAILED = JobPhase.PENDING, JobPhase.RUNNING, JobPhase.SUCCEEDED, None


@pytest.mark.parametrize(
    ("backend", "scenario", "kind", "expected"),
    [
        ("volcano", "vcjob-pytorch", "Job", [PENDING, RUNNING, SUCCEEDED]),
        ("jobset", "jobset-basic", "JobSet", [PENDING, RUNNING, SUCCEEDED]),
        ("pytorchjob", "pytorchjob-basic", "PyTorchJob", [PENDING, RUNNING, SUCCEEDED]),
    ],
)
def test_a_recorded_job_goes_from_pending_to_running_to_its_end(
    backend: BackendName, scenario: str, kind: str, expected: list[JobPhase | None]
) -> None:
    seen = phases(backend, scenario, kind)
    assert [phase for index, phase in enumerate(seen) if phase not in seen[:index]] == expected


def test_a_recorded_volcano_job_that_failed_has_its_state_as_the_reason() -> None:
    found = status("volcano", recorded("vcjob-restart", "Job")[-1])
    assert (found.phase, found.failure_reason) == (None, "Failed")


def test_a_volcano_job_has_failed_with_its_first_failed_pod() -> None:
    """A Volcano Job without a policy: its state stays Running until all pods have ended."""
    wrote = {"state": {"phase": "Running"}, "running": 1, "failed": 1, "minAvailable": 2}
    assert status("volcano", wrote).failure_reason == "PodFailed"


@pytest.mark.parametrize(
    ("phase", "reason"),
    [
        ("Aborting", "Aborting"),
        ("Aborted", "Aborted"),
        ("Terminating", "Evicted"),
        ("Terminated", "Evicted"),
        ("Failed", "Failed"),
    ],
)
def test_no_way_leads_back_from_a_volcano_job_that_was_ended(phase: str, reason: str) -> None:
    found = status("volcano", {"state": {"phase": phase, "message": "why"}})
    assert found == JobStatus(
        phase=None, failure_reason=reason, failure_message="why", submitted_at=datetime.fromisoformat(SUBMITTED_AT)
    )


def test_a_volcano_job_whose_last_pods_end_still_runs() -> None:
    assert status("volcano", {"state": {"phase": "Completing"}, "running": 1}).phase is RUNNING


def test_a_pod_of_a_node_that_cannot_be_reached_does_not_run() -> None:
    """Kubernetes marks it as not ready and leaves its phase."""
    unready = {"type": "Ready", "status": "False"}
    for conditions, phase in (
        ([{"type": "Initialized", "status": "True"}, unready], PENDING),
        ([{"type": "Ready", "status": "True"}], RUNNING),
        ([{"type": "PodScheduled", "status": "False"}], RUNNING),
    ):
        assert status("pod", {"phase": "Running", "conditions": conditions}).phase is phase


@pytest.mark.parametrize(
    ("backend", "wrote", "has_started"),
    [
        ("job", {"conditions": [{"type": "Complete", "status": "True"}]}, True),
        ("jobset", {"conditions": [{"type": "Completed", "status": "True"}]}, True),
        ("pytorchjob", {"conditions": [{"type": "Succeeded", "status": "True"}]}, True),
        ("trainjob", {"conditions": [{"type": "Complete", "status": "True"}]}, True),
        ("volcano", {"state": {"phase": "Completed"}}, False),
        ("pod", {"phase": "Succeeded"}, False),
    ],
)
def test_a_job_that_succeeded_keeps_the_times_that_its_controller_tells(
    backend: BackendName, wrote: dict[str, Any], has_started: bool
) -> None:
    assert status(backend, {"startTime": STARTED_AT, **wrote}) == JobStatus(
        phase=SUCCEEDED,
        submitted_at=datetime.fromisoformat(SUBMITTED_AT),
        started_at=datetime.fromisoformat(STARTED_AT) if has_started else None,
    )


@pytest.mark.parametrize("kind", ["Failed", "FailureTarget"])
def test_a_job_that_fails_has_failed_as_soon_as_its_controller_knows(kind: str) -> None:
    """The last of its pods may never end: that on a lost node."""
    passed = {"type": "Suspended", "status": "False"}
    condition = {"type": kind, "status": "True", "reason": "BackoffLimitExceeded", "message": "a pod failed"}
    wrote = {"startTime": STARTED_AT, "conditions": [passed, condition]}
    assert status("job", wrote) == JobStatus(
        phase=None,
        failure_reason="BackoffLimitExceeded",
        failure_message="a pod failed",
        submitted_at=datetime.fromisoformat(SUBMITTED_AT),
        started_at=datetime.fromisoformat(STARTED_AT),
    )


def test_a_pod_that_failed_keeps_when_it_was_submitted() -> None:
    assert status("pod", {"phase": "Failed"}).submitted_at == datetime.fromisoformat(SUBMITTED_AT)


def test_kinds_that_do_not_say_when_they_started_did_so_when_they_were_made() -> None:
    replicated = {"replicatedJobsStatus": [{"name": "node", "ready": 1}]}
    jobs = {"jobsStatus": [{"name": "node", "ready": 1}]}
    for found in (status("jobset", replicated), status("volcano", {"running": 2}), status("trainjob", jobs)):
        assert (found.phase, found.started_at) == (RUNNING, datetime.fromisoformat(SUBMITTED_AT))


@pytest.mark.parametrize(
    ("backend", "reason", "message", "wrote"),
    [
        (
            "jobset",
            "FailedJobs",
            "a job failed",
            {"conditions": [{"type": "Failed", "status": "True", "reason": "FailedJobs", "message": "a job failed"}]},
        ),
        (
            "pytorchjob",
            "PyTorchJobFailed",
            "1 Worker failed",
            {
                "conditions": [
                    {"type": "Running", "status": "False", "reason": "PyTorchJobRunning"},
                    {"type": "Failed", "status": "True", "reason": "PyTorchJobFailed", "message": "1 Worker failed"},
                ]
            },
        ),
        (
            "trainjob",
            "ReachedMaxRestarts",
            "a job failed",
            {
                "conditions": [
                    {"type": "Suspended", "status": "False", "reason": "Resumed", "message": "TrainJob is resumed"},
                    {"type": "Failed", "status": "True", "reason": "ReachedMaxRestarts", "message": "a job failed"},
                ]
            },
        ),
        ("pod", "Evicted", "The node was low", {"phase": "Failed", "reason": "Evicted", "message": "The node was low"}),
        ("pod", "PodFailed", None, {"phase": "Failed"}),
    ],
)
def test_a_failed_job_keeps_its_controllers_words(
    backend: BackendName, reason: str, message: str | None, wrote: dict[str, Any]
) -> None:
    found = status(backend, wrote)
    assert (found.phase, found.failure_reason, found.failure_message) == (None, reason, message)


@pytest.mark.parametrize(
    ("backend", "some", "every"),
    [
        ("job", {"ready": 1}, {"ready": 2}),
        ("job", {"ready": 1}, {"ready": 1, "uncountedTerminatedPods": {"succeeded": ["u"]}}),
        ("job", {"ready": 1}, {"ready": 1, "failed": 1}),
        ("job", {"ready": 1}, {"ready": 1, "succeeded": 1}),
        ("job", {"ready": 1}, {"ready": 1, "uncountedTerminatedPods": {"failed": ["u"]}}),
        (
            "jobset",
            {"replicatedJobsStatus": [{"name": "node", "active": 1, "ready": 0, "succeeded": 0}]},
            {"replicatedJobsStatus": [{"name": "node", "active": 1, "ready": 1, "succeeded": 0}]},
        ),
        ("jobset", {"replicatedJobsStatus": []}, {"replicatedJobsStatus": [{"name": "node", "succeeded": 1}]}),
        ("jobset", {"replicatedJobsStatus": None}, {"replicatedJobsStatus": [{"name": "node", "failed": 1}]}),
        (
            "trainjob",
            {"jobsStatus": [{"name": "node", "active": 1, "ready": 0, "succeeded": 0}]},
            {"jobsStatus": [{"name": "node", "active": 1, "ready": 1, "succeeded": 0}]},
        ),
        ("trainjob", {"jobsStatus": []}, {"jobsStatus": [{"name": "node", "succeeded": 1}]}),
        (
            "trainjob",
            {"jobsStatus": [{"name": "node", "suspended": 1}], "conditions": [{"type": "Suspended", "status": "True"}]},
            {"jobsStatus": [{"name": "node", "failed": 1}]},
        ),
        (
            "volcano",
            {"state": {"phase": "Pending"}, "pending": 1, "running": 1},
            {"state": {"phase": "Running"}, "succeeded": 1, "running": 1},
        ),
        (
            "pytorchjob",
            {"replicaStatuses": {"Master": {"active": 1}, "Worker": {}}},
            {"replicaStatuses": {"Master": {"active": 1}, "Worker": {"succeeded": 1}}},
        ),
        (
            "pytorchjob",
            {"replicaStatuses": {"Master": {"active": 1}, "Worker": {}}},
            {"replicaStatuses": {"Master": {"active": 1}, "Worker": {"failed": 1}}},
        ),
        ("pod", {"phase": "Pending"}, {"phase": "Running"}),
    ],
)
def test_a_job_runs_when_every_pod_of_its_gang_does(
    backend: BackendName, some: dict[str, Any], every: dict[str, Any]
) -> None:
    assert [status(backend, wrote).phase for wrote in ({}, some, every)] == [PENDING, PENDING, RUNNING]


@pytest.mark.parametrize(
    ("backend", "wrote"),
    [
        ("job", {"ready": 2, "startTime": "2026-11-21T03:36:00Z"}),
        ("volcano", {"running": 2, "state": {"phase": "Running", "lastTransitionTime": "2026-11-21T03:36:00Z"}}),
        ("pytorchjob", {"replicaStatuses": {"Worker": {"active": 2}}, "startTime": "2026-11-21T03:36:00Z"}),
        ("pod", {"phase": "Running", "startTime": "2026-11-21T03:36:00Z"}),
    ],
)
def test_a_job_has_started_when_its_controller_says(backend: BackendName, wrote: dict[str, Any]) -> None:
    found = status(backend, wrote)
    assert (found.phase, found.started_at) == (RUNNING, datetime(2026, 11, 21, 3, 36, tzinfo=UTC))
    assert found.submitted_at == datetime(2026, 11, 21, 3, 35, 30, tzinfo=UTC)


def test_an_elastic_job_runs_with_as_many_nodes_as_it_needs() -> None:
    wrote = {"replicaStatuses": {"Worker": {"active": 1}}}
    assert status("pytorchjob", wrote).phase is PENDING
    assert status("pytorchjob", wrote, min_nodes=1).phase is RUNNING


@pytest.mark.parametrize("backend", ["job", "jobset", "volcano", "pytorchjob", "trainjob", "pod"])
def test_a_job_without_a_status_is_pending_since_it_was_submitted(backend: BackendName) -> None:
    found = status(backend, {})
    assert found == JobStatus(phase=PENDING, submitted_at=datetime(2026, 11, 21, 3, 35, 30, tzinfo=UTC))
