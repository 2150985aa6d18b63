"""Backend `jobset`: a JobSet of one Indexed Job. Its controller makes the headless Service, named as the JobSet."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.backends.kubernetes.jobset_spec import gang_status, jobset_spec
from lambdas.backends.kubernetes.kind import JobKind
from lambdas.logic.jobs import Job
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.observed.job import JobStatus
from trainflow.workflow.run import JobRef

DESCRIPTION = KUBERNETES_KINDS["jobset"]


def render(job: Job) -> list[dict[str, Any]]:
    """The object to create."""
    return [
        {
            "apiVersion": DESCRIPTION.api_version,
            "kind": DESCRIPTION.kind,
            "metadata": pods.metadata(job),
            "spec": jobset_spec(job) | {"ttlSecondsAfterFinished": pods.KEPT_SECONDS},
        }
    ]


def read_status(_job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    """Status of the job."""
    return gang_status(status, status.get("replicatedJobsStatus") or [], submitted_at, success="Completed")


KIND = JobKind(description=DESCRIPTION, make_objects=render, read_status=read_status)
