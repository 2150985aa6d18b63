"""Survey of the fleet: nodes that are up, their cost, and idle nodes to release."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from trainflow.nodes.instances import INSTANCE_TYPES, nodegroup_name
from trainflow.nodes.prices import usd_per_hour
from trainflow.nodes.training_nodes import Claim, Nodegroup
from trainflow.workflow.run_table import LastSurvey, Releasing

LONGEST_GAP = timedelta(hours=1)
"""Longest gap between surveys while nodes count as having been up. Surveys are five minutes apart."""

BY_NODEGROUP = {nodegroup_name(name): name for name in INSTANCE_TYPES}
"""Instance types by the names of their node groups. The cluster may have other node groups as well."""


@dataclass(frozen=True, kw_only=True)
class IdleNodes:
    """Nodes of one type that no run has claimed for too long, all of them or those beyond the claims."""

    instance_type: str
    since: datetime


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Result of a survey."""

    nodes_up: int
    nodes_without_run: int
    usd: float | None
    """Cost of the nodes since the last survey, at on-demand prices; None if the price of one of them is unknown."""
    unpriced: tuple[str, ...]
    """Instance types of running nodes without a known price in the Region."""
    idle: tuple[IdleNodes, ...]
    """Nodes to release."""
    memory: LastSurvey
    """State that the next survey starts from."""


def survey(
    groups: Iterable[Nodegroup],
    claims: Iterable[Claim],
    *,
    last: LastSurvey | None,
    now: datetime,
    idle_time: timedelta,
    region: str,
) -> Fleet:
    """Count the nodes and find the types with idle ones.

    Args:
        groups: Sizes of the training node groups, read before the claims: a run claims nodes before it asks for them.
        claims: Claims of runs that need their nodes.
        last: State left by the previous survey; None before the first.
        now: Current time.
        idle_time: How long nodes may stay without a run.
        region: Region whose prices apply.
    """
    claimed = Counter[str]()
    for claim in claims:
        claimed[claim.instance_type] += claim.num_nodes
    up = {BY_NODEGROUP[group.name]: group for group in groups}
    idle_since = {
        instance_type: last.idle_since.get(instance_type, now) if last else now
        for instance_type, group in up.items()
        if group.desired > max(claimed[instance_type], group.minimum)
    }
    costs = {
        name: usd(name, group.desired, _elapsed(last, now), region=region)
        for name, group in up.items()
        if group.desired
    }
    idle = tuple(
        IdleNodes(instance_type=instance_type, since=since)
        for instance_type, since in idle_since.items()
        if now - since >= idle_time
    )
    releasing = {
        each.instance_type: Releasing(since=each.since, num_nodes=up[each.instance_type].desired) for each in idle
    }
    return Fleet(
        nodes_up=sum(group.desired for group in up.values()),
        nodes_without_run=sum(max(group.desired - claimed[name], 0) for name, group in up.items()),
        usd=None if None in costs.values() else sum(cost for cost in costs.values() if cost is not None),
        unpriced=tuple(name for name, cost in costs.items() if cost is None),
        idle=idle,
        memory=LastSurvey(surveyed_at=now, idle_since=idle_since, releasing=releasing),
    )


def released_before(last: LastSurvey | None, groups: Iterable[Nodegroup]) -> Iterator[tuple[IdleNodes, int]]:
    """Nodes that the previous survey has released, with their number: it may have crashed before it sent a message.

    Args:
        last: State left by the previous survey; None before the first.
        groups: Sizes of the training node groups now.
    """
    desired = {BY_NODEGROUP[group.name]: group.desired for group in groups}
    for instance_type, before in (last.releasing if last else {}).items():
        num_nodes = before.num_nodes - desired.get(instance_type, 0)
        if num_nodes > 0:
            yield IdleNodes(instance_type=instance_type, since=before.since), num_nodes


def usd(instance_type: str, num_nodes: int, time: timedelta, *, region: str) -> float | None:
    """Cost of nodes over a time at on-demand prices, in USD; None where no price is known."""
    price = usd_per_hour(instance_type, region=region)
    return None if price is None else num_nodes * price * (time / timedelta(hours=1))


def unknown_price_text(instance_type: str, *, region: str) -> str:
    """The sentence that replaces a cost where no price is known."""
    return f"No on-demand price of {instance_type} in {region} is known; trainflow/nodes/prices.json has none."


def _elapsed(last: LastSurvey | None, now: datetime) -> timedelta:
    """Time since the last survey; zero at the first one, whose nodes are charged from the second on."""
    return timedelta(0) if last is None else max(timedelta(0), min(now - last.surveyed_at, LONGEST_GAP))
