"""The nodes that gangs run on: how large a node group is, and which run claims how many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, kw_only=True)
class Nodegroup:
    """A node group's size."""

    name: str
    desired: int
    """Desired size; nodes that are starting cost money too."""
    minimum: int
    maximum: int
    subnets: tuple[str, ...] = ()
    """Subnets that its nodes are in."""
    capacity_type: str = "ON_DEMAND"
    """EKS' name of it: ON_DEMAND, SPOT or CAPACITY_BLOCK."""
    auto_scaling_group: str | None = None
    """The group that starts its instances."""

    @property
    def surplus(self) -> int:
        """Nodes that can be released."""
        return max(self.desired - self.minimum, 0)


@dataclass(frozen=True, kw_only=True)
class ScalingGroup:
    """The Auto Scaling group of a node group, as it is now. EKS reports its size a little later."""

    desired: int
    in_service: frozenset[str]
    """Ids of its instances that neither start nor leave."""


@dataclass(frozen=True, kw_only=True)
class FailedLaunch:
    """An attempt of Auto Scaling to start an instance, which failed."""

    at: datetime
    message: str


@dataclass(frozen=True, kw_only=True)
class Claim:
    """Nodes that a run needs. The claim exists from before they are requested until it is cancelled."""

    name: str
    run_id: str
    instance_type: str
    num_nodes: int
    created_at: str = ""
    """Time when the run began to wait; RFC 3339 in UTC, which sorts by time."""
    avoided_nodes: frozenset[str] = frozenset()
    """Nodes that the run does not use."""


@dataclass(frozen=True, kw_only=True)
class Grants:
    """Which runs have their nodes of a type, as it is stored in one object."""

    by_run: Mapping[str, int]
    """Nodes of each run."""
    version: str | None = None
    """Version of the object, required to replace it; None before the object exists."""
