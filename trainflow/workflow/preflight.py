"""Facts that preflight collects before anything is billed. A fact that could not be read is `Unknown`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainflow.nodes.daemon_pods import DaemonPods


@dataclass(frozen=True)
class Unknown:
    """A fact that could not be read: access is missing, or the service did not answer."""

    reason: str


@dataclass(frozen=True)
class Refused:
    """The cluster's refusal of an object, in its own words."""

    message: str


@dataclass(frozen=True)
class Zone:
    """An Availability Zone by its two names: the same id is the same place in every account."""

    id: str
    name: str


@dataclass(frozen=True, kw_only=True)
class Quota:
    """Number of vCPUs of an instance family that may run at once."""

    name: str
    code: str
    limit: float
    in_use: float | Unknown


@dataclass(frozen=True, kw_only=True)
class AccountFacts:
    """Resources of the AWS account for the gang."""

    zones: tuple[Zone, ...] | Unknown
    """Availability Zones of the node group's subnets."""
    offered_in: frozenset[str] | Unknown
    """Ids of those among these zones that offer the instance type."""
    quota: Quota | Unknown | None
    """None for nodes that no quota counts."""


@dataclass(frozen=True, kw_only=True)
class VolumeClaim:
    """The claim of the shared file system."""

    phase: str
    zones: frozenset[str] = frozenset()
    """Names or ids of the zones that its volume can be mounted in; empty for one that can be mounted everywhere."""


@dataclass(frozen=True, kw_only=True)
class PluginNodes:
    """State of the nodes that advertise devices."""

    settled: tuple[frozenset[str], ...] = ()
    """Devices that each node of the type advertises in full, of the nodes that have been ready for a while."""
    huge_pages_mib: int = 0
    """The most that one of these nodes sets aside in huge pages, in MiB."""
    os_images: frozenset[str] = frozenset()
    """Operating systems of these nodes, in their makers' words."""
    daemon_sets: frozenset[str] | Unknown = frozenset()
    """Names of the daemon sets of the cluster."""


@dataclass(frozen=True, kw_only=True)
class ClusterFacts:
    """Resources of the Kubernetes cluster for the run. Resources that the spec does not request count as present."""

    service_account: bool | Unknown
    claim: VolumeClaim | Unknown | None
    plugins: PluginNodes | Unknown
    queue: str | Unknown | None = "Open"
    """State of the Volcano queue; None if the queue does not exist."""
    priority_class: bool | Unknown = True
    policies_enforced: bool | Unknown = True
    """Whether the cluster's network plugin enforces network policies."""
    ipv4: bool | Unknown = True
    """Whether pods have IPv4 addresses, by the addresses of nodes for small programs."""
    daemon_pods: tuple[DaemonPods, ...] | Unknown = ()
    """Pods of the cluster's daemon sets."""
    disks: tuple[int, ...] | Unknown = ()
    """Bytes that each node for small programs offers to images and pods; empty if no kubelet reports them."""
    kind_installed: bool | Unknown = True
    """Whether the cluster knows the kind of job that the backend makes."""


@dataclass(frozen=True, kw_only=True)
class DatasetFacts:
    """The data set where it comes from."""

    is_there: bool = True
    """Whether it exists and may be read."""
    manifest_is_there: bool = True
    num_bytes: int | Unknown = 0
    is_verifiable: bool | None = None
    """Whether S3 keeps a checksum of the archive; None where it is not known, or not needed."""
    from_region: str | None = None
    """Region of its bucket, if that is another one than the deployment's."""
    etag: str | None = None
    """ETag that staging records to recognize a new upload; None if only staging can read it."""


@dataclass(frozen=True, kw_only=True)
class Probed:
    """Results of a small pod in the workload's image."""

    machine: str
    """Architecture of the processor that it ran on, as `uname -m` prints it."""
    program: str | None = None
    """Problem with the workload's program, in a sentence; None if the program exists."""
    arguments: str | None = None
    """Problem with its arguments; None if no problem is known."""
    free_bytes: int | None = None
    """Free bytes of the shared file system."""
    staged_url: str | None = None
    """URL of the data set that has been staged there."""
    staged_etag: str | None = None
    """ETag of that upload; None where an older trainer did not record it."""
    checkpoint_bytes: int | None = None
    """Total size of the program's checkpoints; None for a program that cannot be asked."""
    continues: str | None = None
    """Reason why the run cannot continue the runs that it names, in a sentence; None if it can, or names none."""
    packages: str | None = None
    """Digest of the installed Python packages. It identifies the environment of nodes without container images."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Versions of Python and of the packages that decide what a training computes, as the probe names them."""
