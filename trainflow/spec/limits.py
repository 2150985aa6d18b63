"""Limits of a spec that can only be judged at a place and a time: its prices, and whether its deadline lies ahead."""

from __future__ import annotations

from datetime import datetime

from trainflow.errors import InvalidRunSpec
from trainflow.nodes.prices import prices, usd_per_hour
from trainflow.spec.run_spec import RunSpec


def require_limits_ahead(spec: RunSpec, *, now: datetime, region: str | None = None) -> None:
    """Require that a run can start within its limits.

    Args:
        spec: The spec.
        now: When the run is to start.
        region: Region whose prices count; None where it is not known yet, so that a price in any Region is enough.

    Raises:
        InvalidRunSpec: If the deadline has passed, or the price of a type is unknown and the cost is limited.
    """
    limits = spec.limits
    if limits.deadline is not None and limits.deadline <= now:
        raise InvalidRunSpec(
            f"limits.deadline: {limits.deadline.isoformat()} has passed; give a later time, or remove it."
        )
    if limits.max_usd is None:
        return
    for name in spec.compute.types:
        if not _has_price(name, region):
            raise InvalidRunSpec(
                f"limits.max_usd: the price of {name} is not known in {region or 'any Region'}; limit the time with "
                "limits.max_total_hours instead, or add the price to trainflow/nodes/prices.json."
            )


def _has_price(instance_type: str, region: str | None) -> bool:
    if region is not None:
        return usd_per_hour(instance_type, region=region) is not None
    return any(name == instance_type for _, name in prices())
