"""Answers of an account and the registries. Values only: `checks/` judges them, `aws.py` and `registries.py` ask."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Unknown:
    """A question without an answer."""

    reason: str
    """One clause: which permission is missing, or what did not answer."""
    fix: str = ""
    """Advice on how to get the answer."""


@dataclass(frozen=True)
class NoCredentials:
    """The caller lacks valid credentials, so that other questions cannot be asked."""

    reason: str
    fix: str


@dataclass(frozen=True)
class Identity:
    """The caller."""

    account: str
    arn: str
    """ARN of a user, of the root user, or of an assumed role's session."""


@dataclass(frozen=True)
class Quota:
    """A limit of the account as it is applied, and what is in use where that can be counted."""

    limit: float
    in_use: float | Unknown = 0


@dataclass(frozen=True)
class ClusterVersion:
    """A Kubernetes version that EKS offers."""

    version: str
    status: str
    """`STANDARD_SUPPORT`, `EXTENDED_SUPPORT` or `UNSUPPORTED`."""
    end_of_standard_support: datetime | None


@dataclass(frozen=True)
class EksCluster:
    """An existing cluster."""

    version: str
    status: str
    authentication_mode: str
    deployment: str | None
    """Value of its tag `trainflow:deployment`."""
    ip_family: str = "ipv4"
    """Family of the addresses of its pods: `ipv4` or `ipv6`."""


@dataclass(frozen=True)
class NodegroupImage:
    """An existing node group."""

    release: str
    desired: int


@dataclass(frozen=True)
class NodeImage:
    """A machine image of EKS."""

    name: str
    description: str


@dataclass(frozen=True)
class Reservation:
    """A capacity reservation or a Capacity Block."""

    state: str
    instance_type: str
    zone_id: str
    total: int
    capacity_block: bool
    end: datetime | None


@dataclass(frozen=True)
class Simulation:
    """Result of IAM's simulation for a principal."""

    principal: str
    denied: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Facts:
    """Every answer; None where the configuration does not need the question."""

    now: datetime
    identity: Identity | NoCredentials
    address: str | Unknown | None = None
    """Public address of this machine."""
    region_status: str | Unknown | None = None
    zones: frozenset[str] | Unknown | None = None
    """Ids of the Region's zones."""
    offered: Mapping[str, frozenset[str]] | Unknown | None = None
    """The zones that offer each instance type."""
    quotas: Mapping[str, Quota | Unknown] = field(default_factory=dict)
    """Quotas by their code."""
    cluster_versions: tuple[ClusterVersion, ...] | Unknown | None = None
    add_ons: Mapping[str, str] | Unknown | None = None
    """Add-ons that EKS offers for the cluster's version: the version that it installs, by the add-on's name."""
    cluster: EksCluster | Unknown | None = None
    """The cluster of the configuration's name; None if it does not exist."""
    nodegroups: Mapping[str, NodegroupImage] | Unknown = field(default_factory=dict)
    """Trainium node groups that are there, by name."""
    newest_release: str | Unknown | None = None
    node_images: tuple[NodeImage, ...] | Unknown | None = None
    """EKS's Neuron images of the pinned release's version and date."""
    bootstrap_version: int | Unknown | None = None
    """None: the account and Region are not bootstrapped."""
    roles: Mapping[str, bool | Unknown] = field(default_factory=dict)
    """Whether IAM has each role or user that was asked about, by ARN or name."""
    may_deploy: Simulation | Unknown | None = None
    """Simulated permissions of the caller."""
    may_create: Simulation | Unknown | None = None
    """Simulated permissions of CloudFormation's role, which makes the resources."""
    stacks: Mapping[str, str] | Unknown = field(default_factory=dict)
    """Status of each stack of the deployment that is there."""
    log_groups: frozenset[str] | Unknown = frozenset()
    """Existing log groups among those that the stacks make."""
    tagged: tuple[str, ...] | Unknown = ()
    """ARNs of everything in the Region that is tagged as the deployment's."""
    reservations: Mapping[str, Reservation | Unknown | None] = field(default_factory=dict)
    """Reservations by id; None for one that does not exist."""
    artifacts: Mapping[str, bool | Unknown] = field(default_factory=dict)
    """Whether a registry has each image and chart, by the name that `needs.py` gives it."""
    objects: Mapping[str, bool | Unknown] = field(default_factory=dict)
    """Whether the account has each resource that the configuration names by id."""
