"""Present prices of Spot nodes: a file cannot hold them, since they follow supply and demand.

Source: Amazon EC2 API reference, DescribeSpotPriceHistory. With the same start and end it returns the price that is in
effect then, for each instance type and zone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trainflow.client.refusals import told

PRODUCT = "Linux/UNIX"
"""Price without a licence."""


@dataclass(frozen=True, kw_only=True)
class SpotPrice:
    """Price of one instance type in the zone where it costs least."""

    usd_per_hour: float
    """Price of one node."""
    zone: str
    """Availability zone."""


@told
def spot_prices(ec2: Any, instance_types: Sequence[str], *, now: datetime) -> dict[str, SpotPrice]:
    """Prices by instance type; types that the Region does not offer as Spot are left out.

    Args:
        ec2: A boto3 client of the Region.
        instance_types: The types.
        now: The time.

    Raises:
        PlaceRefused: If the caller may not ask.
    """
    pages = ec2.get_paginator("describe_spot_price_history").paginate(
        InstanceTypes=list(dict.fromkeys(instance_types)), ProductDescriptions=[PRODUCT], StartTime=now, EndTime=now
    )
    effective: dict[tuple[str, str], tuple[datetime, float]] = {}
    for page in pages:
        for found in page["SpotPriceHistory"]:
            key = found["InstanceType"], found["AvailabilityZone"]
            price = found["Timestamp"], float(found["SpotPrice"])
            effective[key] = max(effective.get(key, price), price)
    cheapest: dict[str, SpotPrice] = {}
    for (instance_type, zone), (_, usd) in sorted(effective.items(), key=lambda item: (item[1][1], item[0])):
        cheapest.setdefault(instance_type, SpotPrice(usd_per_hour=usd, zone=zone))
    return cheapest
