"""Which gateway and which manifests run a job: the one place that knows every backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lambdas.backends import job as indexed_job
from lambdas.backends import jobset, pytorchjob, volcano
from lambdas.backends import pod as bare_pod
from lambdas.backends.backend import Backend
from lambdas.backends.slurm import cluster as slurm
from lambdas.backends.slurm import job_script
from lambdas.backends.slurm.cluster import SlurmBackend
from lambdas.gateways import kubernetes, objects
from lambdas.gateways.kubernetes import KubernetesBackend
from lambdas.handlers.environment import ArtifactEnvironment, ClusterEnvironment, SlurmEnvironment, read
from lambdas.logic.jobs import Job, announcement_key
from trainflow.errors import BackendNotInstalled
from trainflow.models.backends import BackendName
from trainflow.models.run import JobRef

MANIFESTS: Mapping[BackendName, Callable[[Job], list[dict[str, Any]]]] = {
    "job": indexed_job.render,
    "jobset": jobset.render,
    "volcano": volcano.render,
    "pytorchjob": pytorchjob.render,
    "pod": bare_pod.render,
}
"""By `compute.backend`: from a job to the Kubernetes objects that run it."""

LONGEST_POD_NAME = 253
"""RFC 1123 subdomain: what an announcement may hold."""


def connect(name: BackendName) -> Backend:
    """Whatever runs the jobs of a backend.

    Args:
        name: As `compute.backend` has it.
    """
    return connect_slurm() if name == "slurm" else connect_cluster()


def connect_cluster() -> KubernetesBackend:
    """The Kubernetes cluster that this function was deployed for."""
    environment = read(ClusterEnvironment)
    return kubernetes.connect(environment.cluster_name, namespace=environment.namespace)


def connect_slurm() -> SlurmBackend:
    """The Slurm cluster that this function was deployed for.

    Raises:
        BackendNotInstalled: If there is none.
    """
    environment = read(SlurmEnvironment)
    if not environment.slurm_api_url:
        raise BackendNotInstalled("compute.backend is 'slurm', but this deployment has no Slurm cluster.")
    return slurm.connect(
        environment.slurm_api_url,
        key_secret=environment.slurm_key_secret,
        user=environment.slurm_user,
        claims=environment.slurm_claims,
        bucket=read(ArtifactEnvironment).artifact_bucket,
    )


def submit(backend: Backend, job: Job) -> None:
    """Submit a job in the form of its backend; safe to repeat."""
    if job.ref.backend == "slurm":
        artifacts_url = read(ArtifactEnvironment).url_of(job.run_id)
        backend.submit(job_script.render(job, read(SlurmEnvironment).site, artifacts_url=artifacts_url))
    else:
        backend.submit(MANIFESTS[job.ref.backend](job))


def rank0_pod(backend: Backend, run_id: str, job: JobRef) -> str | None:
    """The pod that holds rank 0, with one call; None while nobody knows.

    An elastic job deals its ranks out at run time, so there rank 0 says itself where it is: in an object beside the
    run's artifacts, because its pods may write there and may do nothing in the cluster.
    """
    return announced_pod(run_id, job.name) if job.elastic else backend.rank0(job)


def announced_pod(run_id: str, job_name: str) -> str | None:
    """The pod in which an elastic job's rank 0 said that it is; None before it said so."""
    environment = read(ArtifactEnvironment)
    key = environment.key_of(run_id, announcement_key(job_name))
    said = objects.read(environment.artifact_bucket, key, version_id=None, limit_bytes=LONGEST_POD_NAME)
    return said.decode(errors="replace").strip() or None if said else None
