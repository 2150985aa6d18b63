"""Regions and zones that offer each instance type: a snapshot of November 2026. `prices` has the costs.

Zones by id, because zone names differ between accounts: EC2 DescribeInstanceTypeOfferings by `availability-zone-id`, in
`instance_types.json`.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainflow.nodes.instances import InstanceType, catalogue


@dataclass(frozen=True, kw_only=True)
class Offering:
    """One instance type on the market."""

    zone_ids: tuple[str, ...] | None = None
    """Availability Zones by id; None for types that every zone offers."""

    def is_in(self, zone_id: str) -> bool:
        """Whether the zone offers the type, as far as the snapshot knows."""
        return self.zone_ids is None or zone_id in self.zone_ids


@dataclass(frozen=True)
class VcpuQuota:
    """A quota of EC2 that counts vCPUs, as Service Quotas lists it."""

    code: str
    name: str


VCPU_QUOTAS = {
    "trn_on_demand": VcpuQuota("L-2C3B7624", "Running On-Demand Trn instances"),
    "trn_spot": VcpuQuota("L-6B0D517C", "All Trn Spot Instance Requests"),
    "inf_on_demand": VcpuQuota("L-1945791B", "Running On-Demand Inf instances"),
    "inf_spot": VcpuQuota("L-B5D1601B", "All Inf Spot Instance Requests"),
    "p_on_demand": VcpuQuota("L-417A185B", "Running On-Demand P instances"),
    "p_spot": VcpuQuota("L-7212CCBC", "All P Spot Instance Requests"),
    "g_on_demand": VcpuQuota("L-DB2E81BA", "Running On-Demand G and VT instances"),
    "g_spot": VcpuQuota("L-3819A6DF", "All G and VT Spot Instance Requests"),
    "standard_on_demand": VcpuQuota("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances"),
    "standard_spot": VcpuQuota("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests"),
}
"""Quotas by `InstanceType.quota_family` and way of buying; the fields of the configuration's `vcpu_quotas`.

Codes from `aws service-quotas list-service-quotas --service-code ec2`; the same in every account and region.
"""

SUFFIXES = {"ON_DEMAND": "on_demand", "SPOT": "spot"}
"""End of a quota's name, by EKS's capacity type."""


def node_quota(instance: InstanceType, *, capacity_type: str) -> VcpuQuota | None:
    """The quota that counts a node; None for capacity blocks, which are bought beside the quotas.

    Args:
        instance: Of the node.
        capacity_type: Of its node group, in EKS's words.
    """
    suffix = SUFFIXES.get(capacity_type)
    return VCPU_QUOTAS[f"{instance.quota_family}_{suffix}"] if suffix else None


OFFERINGS = {
    name: Offering(zone_ids=tuple(fields["zone_ids"]) if "zone_ids" in fields else None)
    for name, fields in catalogue()["instance_types"].items()
}
"""Offering of each instance type, by EC2 name."""
