"""Descriptions of the backends that run gangs: names, kinds of Kubernetes objects, abilities.

The run spec is checked against these descriptions, and launchers' command lines, grants in the cluster and the laptop's
command are made of them. `lambdas/backends` turns jobs into objects. Names of hosts and labels are those that the
controllers give: Kubernetes' Job controller, JobSet 0.12, Volcano 1.15, the training operator 1.9, Trainer 2.3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

BackendName = Literal["job", "jobset", "volcano", "pytorchjob", "trainjob", "pod", "slurm"]

GANG = "node"
"""Name of the one part that JobSets and Volcano Jobs have here: the replicated job, the task. Kubeflow Trainer demands
it."""

MAX_HOST_NAME = 63
"""Length of a DNS label (RFC 1123), and so of a pod's host name and of a Service."""

NODE_RANK = "$SLURM_NODEID"
MASTER_ADDRESS = "$MASTER_ADDR"
"""Words of a job's command: the job script lets the shell fill them in, and nothing else."""


@dataclass(frozen=True, kw_only=True)
class BackendDescription:
    """Fields and methods that every backend has."""

    name: BackendName
    node_rank: str = "0"
    """Filled in on each node, from the environment that the program's starter adds."""
    rank0_host: str = "localhost"
    """Host of the rendezvous, as the other nodes of the gang call it."""
    elastic_host: str | None = None
    """Host that keeps the store of an elastic rendezvous; None for backends without elastic jobs."""
    longest_name: str = "{job}"
    """The longest name that is made of the job's: of a pod, its host or its Service."""
    network_interface: str | None = None
    """Name of the network interface that connects the nodes or pods; None if it differs between nodes."""
    single_node: bool = False
    """Whether its gangs are one node."""
    small_programs: BackendName = "job"
    """Backend of the run's programs with one process each: staging, publishing."""

    @property
    def runs_on_kubernetes(self) -> bool:
        """Whether jobs are objects in a Kubernetes cluster: images, PriorityClasses, the linked file system."""
        return False

    @property
    def needs_slurm(self) -> bool:
        """Whether there has to be a Slurm cluster."""
        return False

    @property
    def has_queues(self) -> bool:
        """Whether `compute.queue` may name one."""
        return False

    @property
    def runs_elastic_jobs(self) -> bool:
        """Whether a gang may go on with fewer nodes."""
        return self.elastic_host is not None

    def rank0_address(self, job: str) -> str:
        """Host name of rank 0's node."""
        return self.rank0_host.format(job=job)

    def elastic_address(self, job: str) -> str:
        """Host name of the node that keeps the store of an elastic job's rendezvous.

        Raises:
            ValueError: If the backend does not support elastic jobs.
        """
        if self.elastic_host is None:
            raise ValueError(f"backend '{self.name}' has no elastic jobs")
        return self.elastic_host.format(job=job)

    def name_length(self, job: str, *, num_nodes: int) -> int:
        """Length of the longest name that has to fit `MAX_HOST_NAME`."""
        return len(self.longest_name.format(job=job, last=num_nodes - 1))


@dataclass(frozen=True, kw_only=True)
class Companion:
    """A kind of object in a job's API group. One of the job's name is created before the job and deleted after it."""

    kind: str
    plural: str


TRAINING_RUNTIME = Companion(kind="TrainingRuntime", plural="trainingruntimes")
"""Companion of a TrainJob, which holds its pods."""


@dataclass(frozen=True, kw_only=True)
class KubernetesKind(BackendDescription):
    """One kind of object, as the API serves it."""

    group: str
    """API group; empty for the core group."""
    version: str
    kind: str
    plural: str
    network_interface: str | None = "eth0"
    software: str | None = None
    """Software that the cluster needs for it; None if Kubernetes includes it."""
    rank0: Mapping[str, str] = field(default_factory=dict)
    """Labels that, of a job's pods, only the one of node rank 0 has."""
    queues: str | None = None
    """Path of the API that serves its queues; None for a kind without queues."""
    num_named_apart: int = 0
    """Nodes with names of their own, counted before the others: the training operator's master."""
    makes_service: bool = False
    """Whether we make a Service of the job's name beside it, which goes with the job."""
    companion: Companion | None = None
    """Kind of object that the job refers to; None if the job holds everything itself."""
    may_be_suspended: bool = False
    """Whether others suspend and resume its jobs, whose pods then have new names."""
    container: str | None = None
    """Name that the controller demands of the program's container; None if any name will do."""

    @property
    def runs_on_kubernetes(self) -> bool:
        """It does."""
        return True

    @property
    def has_queues(self) -> bool:
        """Whether the API serves some."""
        return self.queues is not None

    def container_name(self, stage: str) -> str:
        """Name of the program's container in the pods of a stage's job."""
        return self.container or stage

    @property
    def api(self) -> str:
        """Path of the API group."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    @property
    def api_version(self) -> str:
        """API group and version as manifests write them."""
        return f"{self.group}/{self.version}" if self.group else self.version

    def pod_name(self, job: str, rank: int, *, elastic: bool = False) -> str:
        """Name of the pod of a job's node, without the random characters that some controllers end it with."""
        if self.single_node:
            return job
        if rank == 0 and not elastic:
            return self.rank0_address(job).split(".")[0]
        last = rank if elastic else rank - self.num_named_apart
        return self.longest_name.format(job=job, last=last).removesuffix("-abcde")

    @property
    def not_installed(self) -> str:
        """Message for a cluster without the software."""
        return (
            f"compute.backend is '{self.name}', but {self.software} is not installed in the cluster: it does not know "
            f"{self.plural}.{self.group}."
        )


KUBERNETES_KINDS: Mapping[BackendName, KubernetesKind] = {
    kind.name: kind
    for kind in (
        KubernetesKind(
            name="job",
            group="batch",
            version="v1",
            kind="Job",
            plural="jobs",
            rank0={"batch.kubernetes.io/job-completion-index": "0"},
            makes_service=True,
            node_rank="$(JOB_COMPLETION_INDEX)",
            rank0_host="{job}-0.{job}",
            longest_name="{job}-{last}",
        ),
        KubernetesKind(
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
        KubernetesKind(
            name="volcano",
            group="batch.volcano.sh",
            version="v1alpha1",
            kind="Job",
            plural="jobs",
            software="Volcano",
            queues="/apis/scheduling.volcano.sh/v1beta1/queues",
            rank0={"volcano.sh/task-spec": GANG, "volcano.sh/task-index": "0"},
            node_rank="$(VC_TASK_INDEX)",
            rank0_host=f"{{job}}-{GANG}-0.{{job}}",
            longest_name=f"{{job}}-{GANG}-{{last}}",
        ),
        KubernetesKind(
            name="pytorchjob",
            group="kubeflow.org",
            version="v1",
            kind="PyTorchJob",
            plural="pytorchjobs",
            software="the Kubeflow training operator",
            container="pytorch",
            rank0={"training.kubeflow.org/replica-type": "master"},
            # The operator's environment, the same in every pod of the job: docs/jobs.md.
            node_rank="$(PET_NODE_RANK)",
            rank0_host="{job}-master-0",
            elastic_host="{job}-worker-0",
            num_named_apart=1,
            longest_name="{job}-worker-{last}",
        ),
        KubernetesKind(
            name="trainjob",
            group="trainer.kubeflow.org",
            version="v1alpha1",
            kind="TrainJob",
            plural="trainjobs",
            software="Kubeflow Trainer v2",
            companion=TRAINING_RUNTIME,
            may_be_suspended=True,
            container=GANG,
            # Its pods are those of a JobSet of the same name.
            rank0={"jobset.sigs.k8s.io/job-global-index": "0", "batch.kubernetes.io/job-completion-index": "0"},
            node_rank="$(PET_NODE_RANK)",
            rank0_host=f"{{job}}-{GANG}-0-0.{{job}}",
            longest_name=f"{{job}}-{GANG}-0-{{last}}-abcde",
        ),
        KubernetesKind(name="pod", group="", version="v1", kind="Pod", plural="pods", single_node=True),
    )
}
"""Those that the cluster serves, by the name in `compute.backend`."""


@dataclass(frozen=True, kw_only=True)
class SlurmJobs(BackendDescription):
    """Jobs of a Slurm cluster, whose queues are its partitions. No host is named: they run on the nodes as they are
    called."""

    @property
    def needs_slurm(self) -> bool:
        """It does."""
        return True

    @property
    def has_queues(self) -> bool:
        """Partitions."""
        return True


SLURM = SlurmJobs(name="slurm", node_rank=NODE_RANK, rank0_host=MASTER_ADDRESS, small_programs="slurm")

DESCRIPTIONS: Mapping[BackendName, BackendDescription] = {**KUBERNETES_KINDS, SLURM.name: SLURM}
"""All, by the name in `compute.backend`."""
