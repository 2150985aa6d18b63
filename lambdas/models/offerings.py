"""Where instance types are offered and what they cost: a snapshot of November 2026.

Zones by id, because zone names differ between accounts: EC2 DescribeInstanceTypeOfferings by `availability-zone-id`.
Prices in USD an hour, on demand, Linux, us-west-2 (trn2.48xlarge: us-east-2): EC2's on-demand price list. That of
trn2.48xlarge is an estimate from the price of its Capacity Blocks.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Offering:
    """One instance type on the market."""

    usd_per_hour: float
    zone_ids: tuple[str, ...] = ()
    """Availability Zones by id; empty for types that every zone offers."""

    def is_in(self, zone_id: str) -> bool:
        """Whether the zone offers the type, as far as the snapshot knows."""
        return not self.zone_ids or zone_id in self.zone_ids


OFFERINGS = {
    "trn1.2xlarge": Offering(
        usd_per_hour=1.34375, zone_ids=("use1-az5", "use1-az6", "use2-az3", "usw2-az1", "usw2-az4")
    ),
    "trn1.32xlarge": Offering(
        usd_per_hour=21.50, zone_ids=("use1-az4", "use1-az5", "use1-az6", "use2-az3", "usw2-az1", "usw2-az4")
    ),
    "trn1n.32xlarge": Offering(usd_per_hour=24.78, zone_ids=("use1-az6", "use2-az3", "usw2-az4")),
    "trn2.48xlarge": Offering(usd_per_hour=35.76, zone_ids=("use2-az1", "use2-az2", "use2-az3")),
    "m5.large": Offering(usd_per_hour=0.096),
    "c7i.xlarge": Offering(usd_per_hour=0.1785),
    "c7i.4xlarge": Offering(usd_per_hour=0.714),
}
"""By EC2 name; every type of the catalogue in `instances.py` stands here too."""
