"""Every backend by its name. A new backend is added to this list only."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from lambdas.backends import job, jobset, pod, pytorchjob, trainjob, volcano
from lambdas.backends.backend import Backend
from lambdas.backends.deployment import Deployment
from lambdas.backends.kubernetes.backend import KubernetesBackend, held_objects
from lambdas.backends.kubernetes.kind import JobKind
from lambdas.backends.run_objects import RunObjects
from lambdas.backends.slurm.backend import SlurmBackend, SlurmRunObjects
from trainflow.deployment.backends import BackendName

# Decision 35: a backend is one module and one entry here.
KINDS: Mapping[BackendName, JobKind] = {
    kind.name: kind for kind in (job.KIND, jobset.KIND, volcano.KIND, pytorchjob.KIND, trainjob.KIND, pod.KIND)
}
"""Backends that are kinds of Kubernetes objects."""

BACKENDS: Mapping[BackendName, Callable[[Deployment], Backend]] = {
    **{name: partial(KubernetesBackend, kind) for name, kind in KINDS.items()},
    "slurm": SlurmBackend,
}
"""All backends, by the value of `compute.backend`, as functions of the deployment."""

RUN_OBJECTS: Sequence[Callable[[Deployment], RunObjects]] = (held_objects, SlurmRunObjects)
"""The systems that the backends above run jobs in, each once, as functions of the deployment."""
