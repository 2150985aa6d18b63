"""Plan of a run before it is started: its instance types, time, objects and cost. Nothing is created."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from trainflow.client.spot_prices import SpotPrice
from trainflow.nodes.prices import usd_per_hour
from trainflow.observed.run_state import VERSION
from trainflow.report.published_figures import PublishedFigure, figure_of_spec
from trainflow.spec.run_spec import RunSpec
from trainflow.spec.total_steps import total_steps
from trainflow.workflow.event_bound import EventBound, event_bound
from trainflow.workflow.planned_run import PlannedRun
from trainflow.workflow.run_record import RunRecord, RunStatus

WATCHING = "WatchTraining"
"""State of a run during its training."""

SHAPE = ("workload.script", "workload.module", "workload.command", "workload.launcher")
"""Fields that two specs of the same program share."""

SIZE = ("compute.instance_type", "compute.num_nodes", "compute.processes_per_node")
"""Fields that they also share if they run it on the same nodes."""


RUN_LIMITS = ("max_total_hours", "deadline", "max_usd")
"""Limits that end a run with a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """One instance type that the run may get, in the order of use."""

    instance_type: str
    usd_per_hour: float | None
    """Price of all nodes together; None where the price in the region is not known."""
    spot_usd_per_hour: float | None = None
    """The same as Spot nodes, now, in the zone where they cost least; None if it was not asked or is not offered."""
    spot_zone: str | None = None


@dataclass(frozen=True, kw_only=True)
class Estimate:
    """Time and price of the whole run, by an earlier one on the same nodes or by published figures."""

    hours: float
    usd: float | None
    """None where no price is known, and by a run of the twin."""
    seconds_per_step: float
    run_id: str | None = None
    """The earlier run; None for an estimate by published figures."""
    source: str | None = None
    """Source of published figures; such an estimate covers only the training."""


@dataclass(frozen=True, kw_only=True)
class Plan:
    """Plan for a spec."""

    name: str
    place: str | None = None
    """Name of the deployment that was asked, or `local`; None where no place was."""
    region: str
    backend: str
    num_nodes: int
    spares: int
    """Further nodes that the run holds; prices count them."""
    processes: int
    candidates: Sequence[Candidate]
    precompiles: bool
    precompile_reason: str
    max_hours: float
    """`limits.max_duration_hours`: the cluster ends a job then. A restarted job has the time anew."""
    max_usd: float | None
    """Price of the first type's nodes for so long."""
    run_limits: Mapping[str, Any]
    """The limits of the whole run that the spec sets, by their names: `max_total_hours`, `deadline`, `max_usd`."""
    total_steps: int | None
    estimate: Estimate | None
    """None without an earlier run of the same program on the same nodes and published figures, or without a number of
    steps."""
    events: EventBound
    """The most events that the run's executions can have in their histories."""
    spot_trouble: str | None = None
    """Reason why Spot prices are unknown; None if they are known."""
    planned: PlannedRun | None = None
    """Objects that the run would submit, and reasons that would prevent its start; None if the place was not asked."""
    planned_trouble: str | None = None
    """Reason why that is unknown; None if it is known."""

    def as_json(self) -> dict[str, Any]:
        """The document that `trainflow plan --json` prints."""
        document = asdict(replace(self, planned=None))
        del document["planned"]
        planned = self.planned.model_dump(mode="json") if self.planned else dict.fromkeys(PlannedRun.model_fields)
        return {"version": VERSION, **document, **planned}


def plan_of(
    spec: RunSpec,
    *,
    region: str,
    place: str | None = None,
    earlier: Sequence[RunRecord] = (),
    of_twin: bool = False,
    spot: Mapping[str, SpotPrice] | None = None,
    spot_trouble: str | None = None,
    planned: PlannedRun | None = None,
    planned_trouble: str | None = None,
) -> Plan:
    """Make the plan for a spec.

    Args:
        spec: The spec.
        region: Region whose prices count.
        place: Name of the place that was asked; None if none was.
        earlier: Records of runs, the newest first.
        of_twin: Whether these were runs of the twin, whose times do not give a price.
        spot: Spot prices by instance type; None if they were not asked for.
        spot_trouble: Reason why they are unknown.
        planned: The place's own plan; None if it was not asked.
        planned_trouble: Reason why it was not.
    """
    compute = spec.compute
    candidates = [
        _candidate(name, region=region, num_nodes=compute.held_nodes, spot=(spot or {}).get(name))
        for name in (compute.instance_type, *compute.fallback)
    ]
    price, document = candidates[0].usd_per_hour, spec.model_dump(mode="json")
    figure = figure_of_spec(document)
    steps = total_steps(document, None) or (figure.max_steps if figure else None)
    own_price = None if of_twin else price
    estimate = _estimate(document, steps, own_price, earlier) if steps else None
    if estimate is None and steps and figure is not None:
        estimate = _published(figure, steps, price)
    return Plan(
        name=spec.name,
        place=place,
        region=region,
        backend=compute.backend,
        num_nodes=compute.num_nodes,
        spares=compute.spares,
        processes=compute.world_size,
        candidates=candidates,
        precompiles=spec.precompiles,
        precompile_reason=spec.precompile_reason,
        max_hours=spec.limits.max_duration_hours,
        max_usd=_times(price, spec.limits.max_duration_hours),
        run_limits={name: document["limits"][name] for name in RUN_LIMITS if document["limits"][name] is not None},
        total_steps=steps,
        estimate=estimate,
        events=event_bound(spec.limits),
        spot_trouble=spot_trouble,
        planned=planned,
        planned_trouble=planned_trouble,
    )


def _candidate(name: str, *, region: str, num_nodes: int, spot: SpotPrice | None) -> Candidate:
    return Candidate(
        instance_type=name,
        usd_per_hour=_times(usd_per_hour(name, region=region), num_nodes),
        spot_usd_per_hour=_times(spot.usd_per_hour, num_nodes) if spot else None,
        spot_zone=spot.zone if spot else None,
    )


def _estimate(
    spec: Mapping[str, Any], steps: int, price: float | None, earlier: Sequence[RunRecord]
) -> Estimate | None:
    for record in earlier:
        rate = _seconds_per_step(record)
        if record.status is RunStatus.SUCCEEDED and rate is not None and _same(spec, record.spec):
            trained, whole = rate * _own_steps(record), _seconds(record)
            hours = (rate * steps + max(0.0, whole - trained)) / 3600
            return Estimate(
                hours=round(hours, 3), usd=_times(price, hours), run_id=record.run_id, seconds_per_step=round(rate, 4)
            )
    return None


def _published(figure: PublishedFigure, steps: int, price: float | None) -> Estimate:
    rate = figure.sequences_per_step / figure.sequences_per_second
    hours = rate * steps / 3600
    return Estimate(
        hours=round(hours, 3), usd=_times(price, hours), seconds_per_step=round(rate, 4), source=figure.source
    )


def _seconds_per_step(record: RunRecord) -> float | None:
    """Time in the training's state over its steps: waits for pods and restarts count, as they will again."""
    steps = _own_steps(record)
    own = [visit for visit in record.states if visit.name == WATCHING and visit.exited_at is not None]
    seconds = sum((visit.exited_at - visit.entered_at).total_seconds() for visit in own if visit.exited_at)
    return seconds / steps if steps > 0 and seconds > 0 else None


def _own_steps(record: RunRecord) -> int:
    """Steps that the run has trained itself, without those of the run that it continues."""
    steps, published = record.training.steps if record.training else 0, record.metrics_published
    if not record.spec.get("resume_from") or published is None or published.first_step is None:
        return steps
    return steps - published.first_step + 1


def _seconds(record: RunRecord) -> float:
    return (record.ended_at - record.started_at).total_seconds() if record.ended_at else 0.0


def _same(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(_field(one, name) == _field(other, name) for name in (*SHAPE, *SIZE))


def _field(spec: Mapping[str, Any], dotted: str) -> Any:
    """A field's value; what is missing, None and a default that older records lack count the same."""
    value: Any = spec
    for name in dotted.split("."):
        value = value.get(name) if isinstance(value, Mapping) else None
    return value or None


def _times(usd: float | None, factor: float) -> float | None:
    return None if usd is None else round(usd * factor, 2)
