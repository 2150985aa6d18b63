"""The section `slurm`: a cluster that this deployment makes, or an existing one."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Literal, Self

from pydantic import Field, field_validator, model_validator

from trainflow.configuration.nodes import Nodegroup, same_type_twice, vcpus_by_quota
from trainflow.configuration.section import Section
from trainflow.nodes.instances import INSTANCE_TYPES, SYSTEM_INSTANCE, InstanceType

AMI = r"^ami-[0-9a-f]{8,17}$"
INSTANCE = r"^i-[0-9a-f]{8,17}$"
SECURITY_GROUP = r"^sg-[0-9a-f]{8,17}$"
KEY_ARN = r"^arn:aws[-a-z]*:secretsmanager:[-a-z0-9]+:\d{12}:secret:.+-[A-Za-z0-9]{6}$"
API_URL = r"^http://[a-z0-9]([-.a-z0-9]*[a-z0-9])?:\d{2,5}$"
LINUX_USER = r"^[a-z_][-a-z0-9_]{0,31}$"
PARTITION = r"^[A-Za-z0-9_][-.A-Za-z0-9_]*$"
FOLDER = r"^(/[A-Za-z0-9_][-.A-Za-z0-9_]*)+$"

IN_WORDS = {
    AMI: "must be the id of a machine image (ami-…)",
    INSTANCE: "must be the id of an EC2 instance (i-…)",
    SECURITY_GROUP: "must be the id of a security group (sg-…)",
    KEY_ARN: "must be the whole ARN of a secret, with the six characters that Secrets Manager adds to its name",
    API_URL: "must be where slurmrestd listens: http://, a private address and the port, such as http://10.0.0.5:6820",
    LINUX_USER: "must be the name of a Linux user",
    PARTITION: "must be the name of a partition, as `sinfo` shows it without the asterisk",
    FOLDER: "must be an absolute path of letters, digits, dots, dashes and underscores",
}


class _SlurmNodes(Section):
    """User, folders and environment of jobs on the nodes of a Slurm cluster."""

    user: Annotated[str, Field(pattern=LINUX_USER)] = "ec2-user"
    """User of the jobs, which has to exist on every node."""
    environment: Annotated[str, Field(pattern=FOLDER)]
    """Folder of the Python environment with PyTorch and the trainer's packages: `<folder>/bin/activate`."""
    program_folder: Annotated[str, Field(pattern=FOLDER)] = "/fsx/data/trainflow"
    """Folder that holds the package `trainer`. The default shows what lies in `data/trainflow/` of the data bucket."""


PCS_NODES = {"SMALL": 32, "MEDIUM": 512, "LARGE": 2048}
"""Most nodes that a controller of each size manages (AWS PCS user guide, cluster sizes)."""


LOGIN_INSTANCES = {
    instance.name: instance
    for instance in (SYSTEM_INSTANCE, *(each for each in INSTANCE_TYPES.values() if not each.accelerated))
}


class LoginNode(Section):
    """A node that always runs, for Slurm's commands by hand. It runs no jobs."""

    instance_type: Annotated[str, Field(json_schema_extra={"enum": list(LOGIN_INSTANCES)})] = SYSTEM_INSTANCE.name
    """EC2 instance type."""

    @field_validator("instance_type")
    @classmethod
    def _a_cpu_type(cls, name: str) -> str:
        if name not in LOGIN_INSTANCES:
            raise ValueError(f"'{name}' is not a type for a login node; choose one of {', '.join(LOGIN_INSTANCES)}")
        return name

    @property
    def instance(self) -> InstanceType:
        """The catalogue's entry."""
        return LOGIN_INSTANCES[self.instance_type]


class Pcs(_SlurmNodes):
    """A Slurm cluster of AWS's Parallel Computing Service, made by this deployment."""

    ami_id: Annotated[str, Field(pattern=AMI)]
    """Amazon Linux 2023 with Neuron driver, EFA, the PCS agent and PCS's Slurm of the same version: docs/slurm.md."""
    version: Literal["25.05", "25.11"] = "25.11"
    """Version of Slurm; 25.05 is the first with a REST API."""
    size: Literal["SMALL", "MEDIUM", "LARGE"] = "SMALL"
    """Size of the controller, which is billed by the hour, for 32, 512 or 2048 nodes."""
    idle_minutes: Annotated[int, Field(ge=1, le=1440)] = 10
    """Minutes before a node without a job is released. Staging, precompiling and training follow each other."""
    queues: tuple[Nodegroup, ...]
    """Nodes by instance type. A queue is called after its type, with dashes: `trn1-32xlarge`."""
    system_nodes: Annotated[int, Field(ge=1, le=10)] = 2
    """Maximum number of small nodes of the queue `system`, for staging and publishing. They exist only while they are
    needed."""
    login_node: LoginNode | None = None
    """Node for people who use `squeue` and `sbatch`, reached by Systems Manager's Session Manager. None: it is not
    created."""

    @field_validator("queues")
    @classmethod
    def _unique_instance_types(cls, queues: tuple[Nodegroup, ...]) -> tuple[Nodegroup, ...]:
        if not queues:
            raise ValueError("there is no queue; name at least one")
        twice = same_type_twice(queues)
        if twice:
            raise ValueError(f"there are two queues of {twice}; a queue is called after its type, so keep one")
        return queues

    @model_validator(mode="after")
    def _as_many_nodes_as_the_controller_manages(self) -> Self:
        nodes = sum(queue.max_nodes for queue in self.queues) + self.system_nodes + (self.login_node is not None)
        if nodes > PCS_NODES[self.size]:
            raise ValueError(
                f"size '{self.size}' manages {PCS_NODES[self.size]} nodes, but the queues may grow to {nodes}; "
                "choose a larger size, or lower max_nodes"
            )
        return self

    @property
    def vcpus_by_quota(self) -> dict[str, int]:
        """vCPUs that all its nodes take of each of the account's quotas."""
        wanted = Counter(vcpus_by_quota(self.queues))
        wanted["standard_on_demand"] += self.system_nodes * SYSTEM_INSTANCE.vcpus
        if self.login_node is not None:
            wanted["standard_on_demand"] += self.login_node.instance.vcpus
        return dict(wanted)


class ExistingSlurm(_SlurmNodes):
    """An existing Slurm cluster that others maintain, such as one of AWS ParallelCluster."""

    api_url: Annotated[str, Field(pattern=API_URL)] | None = None
    """URL of slurmrestd. Give either this, with its key and security group, or `head_node_instance_id`."""
    key_secret_arn: Annotated[str, Field(pattern=KEY_ARN)] | None = None
    """The secret with the key of the cluster's tokens (`jwt_hs256.key`), as base64 text."""
    security_group_id: Annotated[str, Field(pattern=SECURITY_GROUP)] | None = None
    """Security group of the head node; the functions are allowed in on the port of `api_url`."""
    head_node_instance_id: Annotated[str, Field(pattern=INSTANCE)] | None = None
    """Instance for `sbatch` and `squeue`, run by Systems Manager, if slurmrestd is not used."""
    shared_folder: Annotated[str, Field(pattern=FOLDER)] = "/fsx"
    """Folder with `data`, `runs` and `cache` on all nodes."""
    system_queue: Annotated[str, Field(pattern=PARTITION)] | None = None
    """Partition for staging and publishing, with small nodes if there are any. If left out, Slurm's default
    partition."""

    @model_validator(mode="after")
    def _reached_in_one_way(self) -> Self:
        for_api = (self.key_secret_arn, self.security_group_id)
        if (self.api_url is None) == (self.head_node_instance_id is None):
            raise ValueError("needs exactly one of 'api_url' and 'head_node_instance_id'")
        if self.api_url is not None and not all(for_api):
            raise ValueError("api_url needs key_secret_arn and security_group_id; give all three")
        if self.head_node_instance_id is not None and any(for_api):
            raise ValueError(
                "head_node_instance_id goes through Systems Manager, with neither a key nor a security group; "
                "remove key_secret_arn and security_group_id"
            )
        return self

    @property
    def api_port(self) -> int | None:
        """Port of slurmrestd."""
        return int(self.api_url.rpartition(":")[2]) if self.api_url else None


class Slurm(Section):
    """Slurm for runs with `compute.backend: slurm`, beside the EKS cluster."""

    pcs: Pcs | None = None
    """A cluster that this deployment makes. Give either this or `existing`."""
    existing: ExistingSlurm | None = None
    """An existing cluster."""

    @model_validator(mode="after")
    def _one_cluster(self) -> Self:
        if (self.pcs is None) == (self.existing is None):
            raise ValueError("needs exactly one of 'pcs' and 'existing'; without Slurm, remove the section")
        return self
