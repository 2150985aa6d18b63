"""Backend `trainjob`: a TrainJob of Kubeflow Trainer v2, and the TrainingRuntime of its name that it refers to.

Trainer makes a JobSet of the two and mirrors its status (github.com/kubeflow/trainer, v2.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.backends.kubernetes.kind import JobKind
from lambdas.backends.kubernetes.status import count, ended_by_condition, unfinished
from lambdas.logic.jobs import Job
from trainflow.deployment.backends import GANG, KUBERNETES_KINDS
from trainflow.observed.job import JobStatus
from trainflow.workflow.run import JobRef

DESCRIPTION = KUBERNETES_KINDS["trainjob"]
RUNTIME = "TrainingRuntime"

TRAINER = {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
"""Label of the replicated job that a TrainJob's `trainer` is about."""


# Decision 111: every job has a runtime of its own, because patches of a shared one cannot set what pods of runs need.
def render(job: Job) -> list[dict[str, Any]]:
    """The objects to create: Trainer's webhook refuses a TrainJob whose runtime is missing."""
    return [_runtime(job), _trainjob(job)]


def _trainjob(job: Job) -> dict[str, Any]:
    """The job. Trainer adds torchrun's variables to its pods because it has a `trainer`."""
    launch = job.plan.launch if job.plan else None
    processes = launch.processes if launch and launch.launcher != "none" else 1
    return {
        "apiVersion": DESCRIPTION.api_version,
        "kind": DESCRIPTION.kind,
        "metadata": pods.metadata(job),
        "spec": {
            "runtimeRef": {"apiGroup": DESCRIPTION.group, "kind": RUNTIME, "name": job.ref.name},
            "trainer": {"numNodes": job.ref.num_nodes, "numProcPerNode": processes},
        },
    }


def _runtime(job: Job) -> dict[str, Any]:
    """The runtime. Policies of the JobSet are explicit, as in the backend `jobset`.

    It lacks a time to live: Trainer 2.3.0 makes the JobSet of a failed TrainJob again once it is gone.
    """
    return {
        "apiVersion": DESCRIPTION.api_version,
        "kind": RUNTIME,
        "metadata": pods.metadata(job),
        "spec": {
            "mlPolicy": {"torch": {}},
            "template": {
                "spec": {
                    "successPolicy": {"operator": "All", "targetReplicatedJobs": []},
                    # Only the workflow restarts: it first reads the reason of the failure and requests the nodes.
                    "failurePolicy": {"maxRestarts": 0, "restartStrategy": "Recreate"},
                    "startupPolicy": {"startupPolicyOrder": "AnyOrder"},
                    "network": {"enableDNSHostnames": True, "publishNotReadyAddresses": True},
                    "replicatedJobs": [{"name": GANG, "replicas": 1, "template": _indexed_job(job)}],
                }
            },
        },
    }


def _indexed_job(job: Job) -> dict[str, Any]:
    return {
        "metadata": {"labels": dict(TRAINER)},
        "spec": {
            "completionMode": "Indexed",
            "completions": job.ref.num_nodes,
            "parallelism": job.ref.num_nodes,
            "backoffLimit": 0,
            # The pods have the deadline: at a TrainJob's own, Trainer deletes the pods with their logs.
            "template": pods.template(job, pods.pod_spec(job)),
        },
    }


def read_status(_job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    """Status of the job. The one Job of its JobSet counts as ready when all pods are; a suspended job is pending.

    A TrainJob does not report when it started: its creation comes closest.
    """
    if (ended := ended_by_condition(status, success="Complete", submitted_at=submitted_at)) is not None:
        return ended
    jobs: list[Mapping[str, Any]] = status.get("jobsStatus") or []
    complete = bool(jobs) and all(count(each, "ready", "succeeded", "failed") for each in jobs)
    return unfinished(complete, submitted_at, started_at=submitted_at)


KIND = JobKind(description=DESCRIPTION, make_objects=render, read_status=read_status)
