"""Declaration of one kind of Kubernetes object as a backend. Pure: each kind's module makes one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from lambdas.backends.kubernetes.network_policy import network_policies
from lambdas.backends.kubernetes.status import time_of
from lambdas.logic.jobs import Job
from lambdas.logic.preflight.findings import Finding
from trainflow.deployment.backends import BackendName, KubernetesKind
from trainflow.observed.job import JobStatus
from trainflow.spec.run_spec import Compute
from trainflow.workflow.preflight import Unknown
from trainflow.workflow.run import JobRef

ReadStatus = Callable[[JobRef, Mapping[str, Any], datetime | None], JobStatus]
"""Function that makes a job's status from the job, the `status` of its object and the time of its creation."""

QueueFindings = Callable[[Compute, str | Unknown | None], Iterable[Finding]]
"""Function that makes findings about a queue from the gang and the queue's state, None for a missing queue."""


def no_queues(_compute: Compute, _state: str | Unknown | None) -> Iterable[Finding]:
    """The findings of kinds without queues: none."""
    return ()


@dataclass(frozen=True, kw_only=True)
class JobKind:
    """One kind of object that runs gangs."""

    description: KubernetesKind
    make_objects: Callable[[Job], list[dict[str, Any]]]
    """Function that makes the objects which run a job, in the order of their creation."""
    read_status: ReadStatus
    queue_findings: QueueFindings = no_queues
    """Used for kinds whose description names queues."""

    @property
    def name(self) -> BackendName:
        """Value of `compute.backend`."""
        return self.description.name

    def render(self, job: Job) -> list[dict[str, Any]]:
        """All objects of a job, in the order of their creation: a gang's network policy is there before its pods."""
        return [*network_policies(job), *self.make_objects(job)]

    def status(self, job: JobRef, found: Mapping[str, Any]) -> JobStatus:
        """The status of a job.

        Args:
            job: The job.
            found: Its object as the API serves it.
        """
        submitted_at = time_of(found.get("metadata", {}).get("creationTimestamp"))
        return self.read_status(job, found.get("status") or {}, submitted_at)
