"""Backend `trainjob`: a TrainJob of Kubeflow Trainer v2, and the TrainingRuntime of its name that it refers to.

Trainer makes a JobSet of the two and mirrors its status (github.com/kubeflow/trainer, v2.3.0).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.backends.kubernetes.jobset_spec import gang_status, jobset_spec
from lambdas.backends.kubernetes.kind import JobKind
from lambdas.logic.jobs import Job
from trainflow.deployment.backends import KUBERNETES_KINDS, TRAINING_RUNTIME
from trainflow.observed.job import JobStatus
from trainflow.workflow.run import JobRef

DESCRIPTION = KUBERNETES_KINDS["trainjob"]

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
            "runtimeRef": {"apiGroup": DESCRIPTION.group, "kind": TRAINING_RUNTIME.kind, "name": job.ref.name},
            "trainer": {"numNodes": job.ref.num_nodes, "numProcPerNode": processes},
        },
    }


def _runtime(job: Job) -> dict[str, Any]:
    """The runtime.

    It lacks a time to live: Trainer 2.3.0 makes the JobSet of a failed TrainJob again once it is gone.
    """
    return {
        "apiVersion": DESCRIPTION.api_version,
        "kind": TRAINING_RUNTIME.kind,
        "metadata": pods.metadata(job),
        "spec": {"mlPolicy": {"torch": {}}, "template": {"spec": jobset_spec(job, labels=TRAINER)}},
    }


def read_status(_job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    """Status of the job, which mirrors its JobSet's; a suspended job is pending."""
    return gang_status(status, status.get("jobsStatus") or [], submitted_at, success="Complete")


KIND = JobKind(description=DESCRIPTION, make_objects=render, read_status=read_status)
