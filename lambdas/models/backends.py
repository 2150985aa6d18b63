"""The kinds of Kubernetes objects that run a gang: what each is called, how its pods find each other, who brings it.

Everything that differs between the backends and is no manifest stands here as data. Names of hosts and labels are
those that the controllers give: Kubernetes' Job controller, JobSet 0.12, Volcano 1.15, the training operator 1.9.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

BackendName = Literal["job", "jobset", "volcano", "pytorchjob", "pod"]

GANG = "node"
"""Name of the one part that JobSets and Volcano Jobs have here: the replicated job, the task."""

MAX_HOST_NAME = 63
"""Of a DNS label (RFC 1123), and so of a pod's host name and of a Service."""


@dataclass(frozen=True, kw_only=True)
class Backend:
    """One kind of object, as the API serves it."""

    name: BackendName
    group: str
    """API group; empty for the core group."""
    version: str
    kind: str
    plural: str
    software: str | None = None
    """What has to be installed in the cluster; None for what Kubernetes brings itself."""
    rank0: Mapping[str, str] = field(default_factory=dict)
    """Labels that, of a job's pods, only the one of node rank 0 has."""
    node_rank: str = "0"
    """Expanded by the kubelet from the environment that the controller adds."""
    rank0_host: str = "localhost"
    """Where the rendezvous is, as the other pods of the gang call it."""
    longest_name: str = "{job}"
    """The longest name that the controller makes of the job's: of a pod, its host or its Service."""

    @property
    def api(self) -> str:
        """Path of the API group."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def api_version(self) -> str:
        """As manifests write it."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def rank0_address(self, job: str) -> str:
        """Host name of rank 0's pod."""
        return self.rank0_host.format(job=job)

    def name_length(self, job: str, *, num_nodes: int) -> int:
        """Length of the longest name that has to fit `MAX_HOST_NAME`."""
        return len(self.longest_name.format(job=job, last=num_nodes - 1))


BACKENDS: Mapping[BackendName, Backend] = {
    backend.name: backend
    for backend in (
        Backend(
            name="job",
            group="batch",
            version="v1",
            kind="Job",
            plural="jobs",
            rank0={"batch.kubernetes.io/job-completion-index": "0"},
            node_rank="$(JOB_COMPLETION_INDEX)",
            rank0_host="{job}-0.{job}",
            longest_name="{job}-{last}",
        ),
        Backend(
            name="jobset",
            group="jobset.x-k8s.io",
            version="v1alpha2",
            kind="JobSet",
            plural="jobsets",
            software="JobSet",
            rank0={"jobset.sigs.k8s.io/job-global-index": "0", "batch.kubernetes.io/job-completion-index": "0"},
            node_rank="$(JOB_COMPLETION_INDEX)",
            rank0_host=f"{{job}}-{GANG}-0-0.{{job}}",
            # Its webhook counts the five random characters behind a pod's host name too.
            longest_name=f"{{job}}-{GANG}-0-{{last}}-abcde",
        ),
        Backend(
            name="volcano",
            group="batch.volcano.sh",
            version="v1alpha1",
            kind="Job",
            plural="jobs",
            software="Volcano",
            rank0={"volcano.sh/task-spec": GANG, "volcano.sh/task-index": "0"},
            node_rank="$(VC_TASK_INDEX)",
            rank0_host=f"{{job}}-{GANG}-0.{{job}}",
            longest_name=f"{{job}}-{GANG}-{{last}}",
        ),
        Backend(
            name="pytorchjob",
            group="kubeflow.org",
            version="v1",
            kind="PyTorchJob",
            plural="pytorchjobs",
            software="the Kubeflow training operator",
            rank0={"training.kubeflow.org/replica-type": "master"},
            # The operator's environment, the same in every pod of the job: docs/jobs.md.
            node_rank="$(PET_NODE_RANK)",
            rank0_host="{job}-master-0",
            longest_name="{job}-worker-{last}",
        ),
        Backend(name="pod", group="", version="v1", kind="Pod", plural="pods"),
    )
}
"""By the name in `compute.backend`."""
