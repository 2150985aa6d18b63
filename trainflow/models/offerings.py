"""Where instance types are offered: a snapshot of November 2026. What they cost is in `prices`.

Zones by id, because zone names differ between accounts: EC2 DescribeInstanceTypeOfferings by `availability-zone-id`.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainflow.models.instances import InstanceType


@dataclass(frozen=True, kw_only=True)
class Offering:
    """One instance type on the market."""

    zone_ids: tuple[str, ...] = ()
    """Availability Zones by id; empty for types that every zone offers."""

    def is_in(self, zone_id: str) -> bool:
        """Whether the zone offers the type, as far as the snapshot knows."""
        return not self.zone_ids or zone_id in self.zone_ids


@dataclass(frozen=True)
class VcpuQuota:
    """A quota of EC2 that counts vCPUs, as Service Quotas lists it."""

    code: str
    name: str


TRN_ON_DEMAND = VcpuQuota("L-2C3B7624", "Running On-Demand Trn instances")
TRN_SPOT = VcpuQuota("L-6B0D517C", "All Trn Spot Instance Requests")
STANDARD_ON_DEMAND = VcpuQuota("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances")
STANDARD_SPOT = VcpuQuota("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests")
"""Codes from `aws service-quotas list-service-quotas --service-code ec2`; the same in every account and region."""


def quota_of(instance: InstanceType, *, capacity_type: str) -> VcpuQuota | None:
    """The quota that counts a node; None for capacity blocks, which are bought beside the quotas.

    Args:
        instance: Of the node.
        capacity_type: Of its node group, in EKS's words.
    """
    quotas = {
        "ON_DEMAND": TRN_ON_DEMAND if instance.accelerated else STANDARD_ON_DEMAND,
        "SPOT": TRN_SPOT if instance.accelerated else STANDARD_SPOT,
    }
    return quotas.get(capacity_type)


OFFERINGS = {
    "trn1.2xlarge": Offering(zone_ids=("use1-az5", "use1-az6", "use2-az3", "usw2-az1", "usw2-az4")),
    "trn1.32xlarge": Offering(zone_ids=("use1-az4", "use1-az5", "use1-az6", "use2-az3", "usw2-az1", "usw2-az4")),
    "trn1n.32xlarge": Offering(zone_ids=("use1-az6", "use2-az3", "usw2-az4")),
    "trn2.48xlarge": Offering(zone_ids=("use2-az1", "use2-az2", "use2-az3")),
    "m5.large": Offering(),
    "c7i.xlarge": Offering(),
    "c7i.4xlarge": Offering(),
}
"""Offering of each instance type, by EC2 name; every type of the catalogue in `instances.py` has a row."""
