"""Several runs side by side: the differing fields of their specs, and the growth of the throughput with the nodes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from trainflow.record.wording import DATA, PER_NODE, PER_PROCESS
from trainflow.workflow.run_record import RunRecord

NUM_NODES = "compute.num_nodes"

FREE = frozenset({"name", NUM_NODES})
"""Fields that may differ between the runs of a scaling study."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A run with the speed of its training."""

    run_id: str
    spec: Mapping[str, Any]
    instance_type: str | None = None
    """Type of the nodes that it got, which may be one of `compute.fallback`."""
    speeds: Mapping[str, float] = field(default_factory=dict)
    """Per second, by the data that its program counts: over all ranks (`tokens`), or of a part of them
    (`tokens per process`, `tokens per node`)."""

    @property
    def num_nodes(self) -> int | None:
        return _positive(self.spec, "num_nodes")

    def speed(self, data: str) -> float | None:
        """Per second over all ranks; None if the program does not count such data, or the spec says no number of nodes.

        Args:
            data: One of `DATA`.
        """
        nodes, processes = self.num_nodes, _positive(self.spec, "processes_per_node") or 1
        if nodes is None:
            return None
        parts = {"": 1, PER_NODE: nodes, PER_PROCESS: nodes * processes}
        said = (self.speeds.get(f"{data}{part}", 0.0) * number for part, number in parts.items())
        return next((round(speed, 2) for speed in said if speed), None)


@dataclass(frozen=True, kw_only=True)
class ScaledRun:
    """A run of a scaling study."""

    run_id: str
    num_nodes: int
    throughput: float
    """Per second over all ranks."""
    throughput_of: str
    """Unit of the throughput, the same in the whole study."""
    per_node: float
    """Per second and node."""
    efficiency: float
    """Throughput per node as a share of that with the fewest nodes; 1 is linear scaling."""


def measured(record: RunRecord) -> Measured:
    """Speeds of a run from its record."""
    speeds, training = {}, record.training
    if training is not None:
        speeds = dict(training.speeds)
        if training.sequences_per_second is not None:  # records of earlier versions have no other speed
            speeds[training.throughput_of] = training.sequences_per_second
    return Measured(run_id=record.run_id, spec=record.spec, instance_type=record.instance_type, speeds=speeds)


def differing_fields(specs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Differing fields of specs, by their dotted names, with the value of each; None where a spec lacks it."""
    flat = [dict(flattened(spec)) for spec in specs]
    names = dict.fromkeys(name for spec in flat for name in spec)
    rows = {name: [spec.get(name) for spec in flat] for name in names}
    return {name: values for name, values in rows.items() if any(_said(value) != _said(values[0]) for value in values)}


def _said(value: Any) -> Any:
    """A value for comparison: a list or mapping without entries says as little as a field that is not there."""
    return None if value in ([], {}) else value


def value_text(value: Any) -> str:
    """A spec's value for people; empty for a field that it lacks."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def scaling(runs: Sequence[Measured]) -> list[ScaledRun]:
    """The scaling efficiency of runs that differ only in the number of their nodes, fewest nodes first.

    Weak and strong scaling are not distinguished: the specs are the same, so it is the program's own option that
    decides whether its global batch grows with the nodes. Of several runs with the fewest nodes, the median counts. Of
    the data that all runs count, the first in `DATA` is compared.

    Returns:
        Empty for runs that differ in another field or in the type of their nodes, that are of one size, or without a
            common unit of speed.
    """
    sizes = [run.num_nodes for run in runs]
    data = next((data for data in DATA if runs and all(run.speed(data) for run in runs)), "")
    speeds = [run.speed(data) for run in runs]
    alike = len({run.instance_type for run in runs}) < 2
    known = [(run.run_id, size, speed) for run, size, speed in zip(runs, sizes, speeds, strict=True) if size and speed]
    if not alike or len(known) < len(runs) or len(set(sizes)) < 2:
        return []
    if not differing_fields([run.spec for run in runs]).keys() <= FREE:
        return []
    fewest = min(size for _, size, _ in known)
    base = median(speed / size for _, size, speed in known if size == fewest)
    return [
        ScaledRun(
            run_id=run_id,
            num_nodes=size,
            throughput=speed,
            throughput_of=data,
            per_node=round(speed / size, 2),
            efficiency=round(speed / size / base, 4),
        )
        for run_id, size, speed in sorted(known, key=lambda run: run[1])
    ]


def _positive(spec: Mapping[str, Any], field_name: str) -> int | None:
    compute = spec.get("compute")
    size = compute.get(field_name) if isinstance(compute, Mapping) else None
    return size if isinstance(size, int) and size > 0 else None


def flattened(value: Any, name: str = "") -> list[tuple[str, Any]]:
    """Fields of a spec by their dotted names; lists are values."""
    if isinstance(value, Mapping) and value:
        prefix = f"{name}." if name else ""
        return [pair for key, inner in value.items() for pair in flattened(inner, f"{prefix}{key}")]
    return [(name, value)]
