"""Estimated cost of a run, apart from its record. Dataclasses, since the status of an ended run needs no more."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(frozen=True, kw_only=True)
class NodePrice:
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    instance_type: str
    usd_per_hour: float
    as_of: str
    """Date of the price."""
    source: str


@dataclass(frozen=True, kw_only=True)
class StateCost:
    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    state: str
    instance_type: str
    node_hours: float
    usd: float | None = None
    """None where no price is known."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Estimate of what the run's nodes cost: nodes that it held, times their on-demand price. Nothing else is in it."""

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}

    usd: float | None = None
    """None where the price of one of the types is not known."""
    node_hours: float
    region: str
    prices: list[NodePrice] = field(default_factory=list)
    states: list[StateCost] = field(default_factory=list)
    """Shares of the states of the run's own execution, in the order of their first visit."""
