"""Prices of on-demand EC2 instances: USD an hour, Linux, shared tenancy, by region.

`prices.json` holds them, with the date and the source of each table. A price that is not there is unknown: nothing
is estimated from another region's. To add one, add it to a table with the same source, or add a table.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources


class DuplicatePrice(ValueError):
    """Two tables of `prices.json` give a price for one instance type in one region."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """The price of one instance for an hour."""

    usd: float
    as_of: str
    """Date, as YYYY-MM-DD."""
    source: str
    """URL."""


def usd_per_hour(instance_type: str, *, region: str) -> float | None:
    """The price of one instance, or None where no price is known."""
    price = find_price(instance_type, region=region)
    return None if price is None else price.usd


def find_price(instance_type: str, *, region: str) -> Price | None:
    """The price of one instance with its date and source, or None where no price is known."""
    return _priced().get((region, instance_type))


def prices() -> Mapping[tuple[str, str], float]:
    """All prices in USD an hour, by region and instance type."""
    return {key: price.usd for key, price in _priced().items()}


@cache
def _priced() -> Mapping[tuple[str, str], Price]:
    """All prices, by region and instance type.

    Raises:
        DuplicatePrice: If the file contradicts or repeats itself.
    """
    found: dict[tuple[str, str], Price] = {}
    for region, instance_type, price in _entries():
        if (region, instance_type) in found:
            raise DuplicatePrice(f"prices.json prices {instance_type} in {region} twice; remove the older entry.")
        found[region, instance_type] = price
    return found


def _entries() -> Iterator[tuple[str, str, Price]]:
    text = resources.files(__package__).joinpath("prices.json").read_text(encoding="utf-8")
    for table in json.loads(text):
        for region, by_type in table["usd_per_hour"].items():
            for instance_type, usd in by_type.items():
                yield region, instance_type, Price(usd=float(usd), as_of=table["as_of"], source=table["source"])
