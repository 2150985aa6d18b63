"""Estimates what a run's nodes cost: the nodes that it held in each state, times their on-demand price."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from trainflow.deployment.backends import DESCRIPTIONS
from trainflow.nodes.prices import find_price
from trainflow.observed.visit import Visit
from trainflow.record.history import ExecutionHistory, TaskOutput, task_outputs, visits
from trainflow.workflow.run_record import Cost, NodePrice, StateCost

ACQUISITION = "EnsureCapacity"
"""State whose answer has the number of ready nodes, and their type."""

RELEASES = frozenset({"ReleaseNodes", "StopAtLimit", "TearDown", "TearDownAfterFailure"})
"""States that release a run's nodes. One that is not finished has not done so yet."""


@dataclass(frozen=True, kw_only=True)
class Holding:
    """A time with the same held nodes."""

    since: datetime
    until: datetime | None
    """None of nodes that are still held."""
    num_nodes: int
    instance_type: str


@dataclass(frozen=True, kw_only=True)
class NodeUse:
    """The nodes that a run has held so far, and where it spent the time: read of its history once, priced at any
    moment."""

    region: str
    visits: tuple[Visit, ...] = ()
    """Visits that count for the cost of nodes."""
    holdings: tuple[Holding, ...] = ()

    def cost(self, *, end: datetime) -> Cost | None:
        """The estimate; None for a run that has held no nodes, or whose history lacks their number.

        Args:
            end: End of the run, or the present.
        """
        shares: dict[tuple[str, str], float] = {}
        for visit in self.visits:
            for holding in self.holdings:
                hours = holding.num_nodes * (_overlap(visit, holding, end=end) / timedelta(hours=1))
                if hours > 0:
                    key = visit.name, holding.instance_type
                    shares[key] = shares.get(key, 0.0) + hours
        return _cost(shares, region=self.region) if shares else None


def node_use(history: ExecutionHistory, spec: Any) -> NodeUse:
    """The nodes that a run has held.

    Args:
        history: The run's own execution.
        spec: The run spec, which may be invalid. On Slurm, nodes count only in the states that watch a job: Slurm
            starts nodes for the jobs in its queue, and releases them itself.
    """
    counting = visits(history)
    if _needs_slurm(spec):
        counting = [visit for visit in counting if visit.name.startswith("Watch")]
    return NodeUse(region=region_of(history.arn), visits=tuple(counting), holdings=tuple(_holdings(history)))


def region_of(arn: str) -> str:
    """The Region in an ARN; empty if it names none."""
    parts = arn.split(":", 4)
    return parts[3] if len(parts) > 4 else ""


def _needs_slurm(spec: Any) -> bool:
    compute = spec.get("compute") if isinstance(spec, Mapping) else None
    backend = compute.get("backend") if isinstance(compute, Mapping) else None
    return any(described.needs_slurm for name, described in DESCRIPTIONS.items() if name == backend)


def _cost(shares: Mapping[tuple[str, str], float], *, region: str) -> Cost:
    """The estimate of the node-hours by state and type."""
    known = {name: find_price(name, region=region) for name in dict.fromkeys(name for _, name in shares)}
    states = [
        StateCost(
            state=state,
            instance_type=name,
            node_hours=round(hours, 4),
            usd=round(hours * price.usd, 4) if (price := known[name]) is not None else None,
        )
        for (state, name), hours in shares.items()
    ]
    return Cost(
        usd=_total(states),
        node_hours=round(sum(shares.values()), 4),
        region=region,
        prices=[
            NodePrice(instance_type=name, usd_per_hour=price.usd, as_of=price.as_of, source=price.source)
            for name, price in known.items()
            if price is not None
        ],
        states=states,
    )


def _holdings(history: ExecutionHistory) -> Iterator[Holding]:
    """The nodes that a run held, from the answers of its states: a node counts from the poll that found it ready.

    An estimate: the minutes of a node's start are billed, but not included.
    """
    before: TaskOutput | None = None
    for task in task_outputs(history):
        released = task.state in RELEASES and task.fields.get("finished") is not False
        if task.state == ACQUISITION or released:
            if before is not None:
                yield from _holding(before, until=task.at)
            before = task
    if before is not None:
        yield from _holding(before, until=None)


def _holding(task: TaskOutput, *, until: datetime | None) -> Iterator[Holding]:
    ready, wanted, name = (task.fields.get(key) for key in ("nodes_ready", "nodes_wanted", "instance_type"))
    if task.state == ACQUISITION and isinstance(ready, int) and isinstance(wanted, int) and isinstance(name, str):
        num_nodes = min(ready, wanted)
        if num_nodes > 0:
            yield Holding(since=task.at, until=until, num_nodes=num_nodes, instance_type=name)


def _overlap(visit: Visit, holding: Holding, *, end: datetime) -> timedelta:
    begin, last = max(visit.entered_at, holding.since), min(visit.exited_at or end, holding.until or end)
    return max(timedelta(0), last - begin)


def _total(states: Sequence[StateCost]) -> float | None:
    known = [state.usd for state in states if state.usd is not None]
    return round(sum(known), 4) if len(known) == len(states) else None
