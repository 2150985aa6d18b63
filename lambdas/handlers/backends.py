"""Which gateway and which manifests run a job: the one place that knows every backend."""

from __future__ import annotations

from lambdas.gateways import kubernetes
from lambdas.gateways.kubernetes import KubernetesBackend
from lambdas.handlers.environment import ClusterEnvironment, read
from lambdas.logic.jobs import Job
from lambdas.logic.manifests import indexed_job

MANIFESTS = {"job": indexed_job.render}
"""By `compute.backend`: from a job to the objects that run it."""


def connect() -> KubernetesBackend:
    """The cluster that this function was deployed for."""
    environment = read(ClusterEnvironment)
    return kubernetes.connect(environment.cluster_name, namespace=environment.namespace)


def submit(backend: KubernetesBackend, job: Job, *, kind: str) -> None:
    """Submit a job in the form of one backend; safe to repeat."""
    backend.submit(MANIFESTS[kind](job))
