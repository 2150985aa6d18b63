"""Training nodes: instance type, largest number, purchase option, and the quotas of the account."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Annotated, Literal, Self

from pydantic import AwareDatetime, Field, model_validator

from trainflow.configuration.section import Section
from trainflow.deployment.kubernetes_names import ENDS_AT_LABEL
from trainflow.nodes.instances import INSTANCE_TYPES, InstanceType, InstanceTypeName

RESERVATION = r"^cr-[0-9a-f]{8,17}$"

IN_WORDS = {RESERVATION: "must be the id of a capacity reservation or capacity block (cr-…)"}

TERMINATED_BEFORE_END = timedelta(minutes=30)
"""EC2 begins to terminate a capacity block's instances so long before its end (EC2 user guide, "Monitor Capacity Blocks
using EventBridge")."""

Mode = Literal["on-demand", "spot", "capacity-block", "reservation"]


class Nodegroup(Section):
    """Nodes of one instance type; they exist only while runs train."""

    instance_type: InstanceTypeName
    """EC2 instance type."""
    max_nodes: Annotated[int, Field(ge=1, le=1024)]
    """Most nodes that runs may ask for at once: the ceiling of the bill."""
    mode: Mode = "on-demand"
    """Purchase option of the instances."""
    reservation_id: Annotated[str, Field(pattern=RESERVATION)] | None = None
    """Reservation for the modes `capacity-block` and `reservation`."""
    ends_at: AwareDatetime | None = None
    """End of the capacity block, with its zone, as `aws ec2 describe-capacity-reservations` has it. Runs are asked for
    a checkpoint before EC2 terminates the block's instances."""
    local_disks: bool = True
    """Whether the type's NVMe disks hold images and pods' `/scratch`. Off, both are on the root disk."""
    zone_confirmed: bool = False
    """Confirms that the zone offers the type although Trainflow's snapshot of EC2's offerings does not list it."""

    @model_validator(mode="after")
    def _bought_in_one_way(self) -> Self:
        reserved = self.mode in ("capacity-block", "reservation")
        if reserved and self.reservation_id is None:
            raise ValueError(f"mode '{self.mode}' needs the reservation_id that it draws on")
        if not reserved and self.reservation_id is not None:
            raise ValueError(
                f"mode '{self.mode}' cannot draw on {self.reservation_id}; use 'capacity-block' or 'reservation', "
                "or remove reservation_id"
            )
        if self.ends_at is not None and self.mode != "capacity-block":
            raise ValueError(f"ends_at is the end of a capacity block, but mode is '{self.mode}'; remove it")
        return self

    @property
    def node_labels(self) -> dict[str, str]:
        """Labels of its nodes beside those of every group's: those of the type, and the end of a capacity block."""
        if self.ends_at is None:
            return dict(self.instance.node_labels)
        terminated_at = self.ends_at - TERMINATED_BEFORE_END
        return {**self.instance.node_labels, ENDS_AT_LABEL: str(int(terminated_at.timestamp()))}

    @property
    def instance(self) -> InstanceType:
        """The catalogue's entry."""
        return INSTANCE_TYPES[self.instance_type]

    @property
    def uses_local_disks(self) -> bool:
        """Whether there are NVMe disks to use."""
        return self.local_disks and self.instance.has_scratch

    @property
    def quota(self) -> str | None:
        """The field of `VcpuQuotas` that limits it; None for capacity blocks, which are bought beside the quotas."""
        if self.mode == "capacity-block":
            return None
        return f"{self.instance.quota_family}_{'spot' if self.mode == 'spot' else 'on_demand'}"


def same_type_twice(groups: tuple[Nodegroup, ...]) -> str | None:
    """An instance type that more than one group has."""
    types = [group.instance_type for group in groups]
    return next((name for name in types if types.count(name) > 1), None)


class VcpuQuotas(Section):
    """The account's EC2 quotas for running instances, in vCPUs: a trn1.32xlarge takes 128."""

    trn_on_demand: Annotated[int, Field(ge=0)] = 0
    """Running On-Demand Trn instances (L-2C3B7624). New accounts have little or none."""
    trn_spot: Annotated[int, Field(ge=0)] = 0
    """All Trn Spot Instance Requests (L-6B0D517C)."""
    inf_on_demand: Annotated[int, Field(ge=0)] = 0
    """Running On-Demand Inf instances (L-1945791B)."""
    inf_spot: Annotated[int, Field(ge=0)] = 0
    """All Inf Spot Instance Requests (L-B5D1601B)."""
    p_on_demand: Annotated[int, Field(ge=0)] = 0
    """Running On-Demand P instances (L-417A185B): GPUs from p4d to p6."""
    p_spot: Annotated[int, Field(ge=0)] = 0
    """All P Spot Instance Requests (L-7212CCBC)."""
    g_on_demand: Annotated[int, Field(ge=0)] = 0
    """Running On-Demand G and VT instances (L-DB2E81BA): GPUs of g5, g6 and g6e."""
    g_spot: Annotated[int, Field(ge=0)] = 0
    """All G and VT Spot Instance Requests (L-3819A6DF)."""
    standard_on_demand: Annotated[int, Field(ge=0)] = 64
    """Running On-Demand Standard instances (L-1216C47A)."""
    standard_spot: Annotated[int, Field(ge=0)] = 64
    """All Standard Spot Instance Requests (L-34B43A08)."""


def check_quotas(
    quotas: VcpuQuotas, nodegroups: tuple[Nodegroup, ...], slurm: Mapping[str, int] = MappingProxyType({})
) -> None:
    """Refuse groups that could grow beyond what the account may start.

    Args:
        quotas: The quotas, by the names that `Nodegroup.quota` returns.
        nodegroups: The node groups of the EKS cluster.
        slurm: vCPUs that a Slurm cluster may grow to beside them, by quota.

    Raises:
        ValueError: If all groups together can grow beyond a quota.
    """
    wanted = vcpus_by_quota(nodegroups)
    who = "the node groups and Slurm" if slurm else "the node groups"
    for quota in {**wanted, **slurm}:
        vcpus, limit = wanted.get(quota, 0) + slurm.get(quota, 0), getattr(quotas, quota)
        if vcpus > limit:
            raise ValueError(
                f"{who} may grow to {vcpus} vCPUs, but vcpu_quotas.{quota} is {limit}; lower max_nodes, "
                "or ask AWS for more and write the new quota here"
            )


def vcpus_by_quota(groups: Iterable[Nodegroup]) -> dict[str, int]:
    """vCPUs that the groups take of each of the account's quotas at their largest size."""
    wanted: Counter[str] = Counter()
    for group in groups:
        if group.quota is not None:
            wanted[group.quota] += group.max_nodes * group.instance.vcpus
    return dict(wanted)
