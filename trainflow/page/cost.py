"""The cost of a run so far, which is the record's estimate, and at the end, by its nodes' price per hour."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trainflow.nodes.prices import usd_per_hour
from trainflow.observed.run_state import RunState
from trainflow.record.cost import region_of
from trainflow.record.situation import present_seconds_left
from trainflow.workflow.run_record import RunStatus

SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True, kw_only=True)
class Forecast:
    """An estimate in USD."""

    node_hours: float
    """Hours times nodes that the run has held."""
    so_far: float | None
    """None where the price is not known."""
    at_the_end: float | None
    """Forecast with the time that the training still takes at its present speed; None while that is not known."""
    per_hour: float | None
    """All nodes of the run together."""
    basis: str
    """The calculation, as a sentence."""


def forecast(snapshot: RunState) -> Forecast | None:
    """The cost of a run; None if its spec does not name its nodes, or if it has ended without any."""
    compute = snapshot.spec.get("compute")
    if not isinstance(compute, Mapping):
        return None
    instance_type, nodes = snapshot.instance_type or compute.get("instance_type"), compute.get("num_nodes")
    spares = compute.get("spares", 0)
    if not isinstance(instance_type, str) or not isinstance(nodes, int) or not isinstance(spares, int):
        return None
    nodes += spares
    if snapshot.cost is None and snapshot.status is not RunStatus.RUNNING:
        return None
    region = region_of(snapshot.arn)
    price = usd_per_hour(instance_type, region=region) if region else None
    per_hour = None if price is None else price * nodes
    so_far = snapshot.cost.usd if snapshot.cost else None if price is None else 0.0
    left = present_seconds_left(snapshot)
    return Forecast(
        node_hours=snapshot.cost.node_hours if snapshot.cost else 0.0,
        so_far=so_far,
        at_the_end=None
        if so_far is None or per_hour is None or left is None
        else so_far + per_hour * left / SECONDS_PER_HOUR,
        per_hour=per_hour,
        basis=_basis(instance_type, nodes, region, price),
    )


def _basis(instance_type: str, nodes: int, region: str, price: float | None) -> str:
    where = f" in {region}" if region else ""
    if price is None:
        return f"The price of {instance_type}{where} is not known."
    return (
        f"An estimate: the hours in which {nodes} × {instance_type} are held, at the on-demand price of "
        f"{price:,.4g} USD an hour{where}; storage, transfer and the cluster's own nodes are not in it. "
        "A run in the twin is on your own machine, and costs nothing."
    )
