"""Backend `volcano`: a Volcano Job of one task. Its scheduler starts all pods of the gang or none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.backends.kubernetes.kind import JobKind
from lambdas.backends.kubernetes.status import count, time_of, unfinished
from lambdas.logic.jobs import Job
from lambdas.logic.preflight.findings import Finding, Note, Problem
from trainflow.deployment.backends import GANG, KUBERNETES_KINDS
from trainflow.deployment.volcano_queues import DEFAULT_QUEUE
from trainflow.observed.job import JobStatus
from trainflow.spec.run_spec import Compute
from trainflow.workflow.preflight import Unknown
from trainflow.workflow.run import JobPhase, JobRef

DESCRIPTION = KUBERNETES_KINDS["volcano"]

EVICTED = ("Terminating", "Terminated")
"""States of a job after the eviction of a pod, by the policy of `render`."""

FAILURES = ("Aborting", "Aborted", "Terminating", "Terminated", "Failed")
"""States of a Volcano Job that cannot succeed any more (volcano.sh/apis, `JobPhase`)."""


def render(job: Job) -> list[dict[str, Any]]:
    """The object to create.

    No policy ends the job when a pod fails or completes: Volcano's actions would delete the running pods with their
    logs. The workflow sees the failed pod in the job's status, collects diagnostics and tears the job down. After an
    eviction the pod is gone, and a new one could not join a gang in the middle of its training.
    """
    return [
        {
            "apiVersion": DESCRIPTION.api_version,
            "kind": DESCRIPTION.kind,
            "metadata": pods.metadata(job),
            "spec": {
                "schedulerName": "volcano",
                "queue": job.queue or DEFAULT_QUEUE,
                "minAvailable": job.ref.num_nodes,
                "maxRetry": 1,
                **({"priorityClassName": job.priority_class} if job.priority_class else {}),
                "ttlSecondsAfterFinished": pods.KEPT_SECONDS,
                "plugins": {"env": [], "svc": ["--publish-not-ready-addresses=true"]},
                "policies": [{"event": "PodEvicted", "action": "TerminateJob"}],
                "tasks": [
                    {
                        "name": GANG,
                        "replicas": job.ref.num_nodes,
                        "template": pods.template(job, pods.pod_spec(job)),
                    }
                ],
            },
        }
    ]


def read_status(job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    """Status of the job. A failed pod changes the job's state only under a policy, so the pods are counted."""
    state: Mapping[str, Any] = status.get("state") or {}
    phase = state.get("phase")
    if phase == "Completed":
        return JobStatus(phase=JobPhase.SUCCEEDED, submitted_at=submitted_at)
    if phase in FAILURES or status.get("failed"):
        reason = "Evicted" if phase in EVICTED else phase if phase in FAILURES else "PodFailed"
        return JobStatus(
            phase=None, failure_reason=reason, failure_message=state.get("message"), submitted_at=submitted_at
        )
    # A pod that is being evicted counts as terminating, and no more as running.
    complete = phase == "Completing" or count(status, "running", "succeeded") >= job.gang_size
    return unfinished(complete, submitted_at, started_at=time_of(state.get("lastTransitionTime")) or submitted_at)


def queue_findings(compute: Compute, state: str | Unknown | None) -> Iterator[Finding]:
    """Findings about the gang's queue.

    Args:
        compute: Compute section of the spec.
        state: Volcano's state of the queue; None if the queue does not exist.
    """
    if isinstance(state, Unknown):
        yield Note(f"compute.queue: whether there is a queue '{compute.queue}': {state.reason}.")
    elif state is None:
        yield Problem(
            f"compute.queue is '{compute.queue}', but Volcano has no such queue; name one that it has, or "
            "add it to cluster.volcano_queues in the deployment's configuration."
        )
    elif state != "Open":
        yield Problem(
            f"compute.queue is '{compute.queue}', which is {state} and takes no jobs; open it or name another."
        )


KIND = JobKind(description=DESCRIPTION, make_objects=render, read_status=read_status, queue_findings=queue_findings)
