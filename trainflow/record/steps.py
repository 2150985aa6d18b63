"""The logged steps that the workflow stores, in one small document whatever the training's length.

`PublishMetrics` adds what each poll found to `steps.json` beside the run's artifacts; the record and the report are
made of it. A poll that is tried again adds the same steps again, which changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from statistics import median
from typing import Any

from trainflow.models.run import MetricsCursor
from trainflow.protocol.metrics_line import StepMetrics
from trainflow.record.published import latest_of_each_step

FILE_NAME = "steps.json"

MAX_STEPS = 1000
"""Most steps in the document: the number of columns of a chart, in about 100 KB. The document is read and written once
a poll."""


@dataclass(frozen=True, kw_only=True)
class KeptSteps:
    """Evenly spaced steps of a training, all of them if it has logged no more than `MAX_STEPS`."""

    steps: tuple[StepMetrics, ...] = ()
    """The steps in order: the first, those whose distance from it is a multiple of `every`, and the newest."""
    every: int = 1
    """Distance of two stored steps, a power of two."""
    progress: MetricsCursor = field(default_factory=MetricsCursor)
    """Position up to which steps have been published to CloudWatch."""

    @property
    def sequences_per_second(self) -> float | None:
        """Median throughput of the kept steps, over all ranks; None before the first step."""
        return round(median(step.throughput for step in self.steps), 2) if self.steps else None

    def extended(self, steps: Sequence[StepMetrics], progress: MetricsCursor) -> KeptSteps:
        """Add more steps; for a step that is stored already, the newer line counts."""
        known, every = latest_of_each_step([*self.steps, *steps]), self.every
        kept = _spaced(known, every)
        while len(kept) > MAX_STEPS:
            every *= 2
            kept = _spaced(known, every)
        return KeptSteps(steps=tuple(kept), every=every, progress=progress)

    def to_json(self) -> str:
        """Content of `steps.json`. Numbers that JSON does not have are written as words."""
        rows = [[*asdict(step).values()] for step in self.steps]
        document = {
            "every": self.every,
            "progress": self.progress.model_dump(mode="json"),
            "columns": list(StepMetrics.__dataclass_fields__),
            "steps": [[_written(value) for value in row] for row in rows],
        }
        return json.dumps(document, allow_nan=False)


def kept_steps_of(lines: Sequence[StepMetrics]) -> KeptSteps:
    """The steps that would have been stored of these lines."""
    steps = latest_of_each_step(lines)
    if not steps:
        return KeptSteps()
    progress = MetricsCursor(first_step=steps[0].step, last_step=steps[-1].step, datapoints=len(steps))
    return KeptSteps().extended(steps, progress)


def kept_steps_from_json(text: str | bytes) -> KeptSteps:
    """Read the content that `to_json` wrote."""
    document = json.loads(text)
    return KeptSteps(
        steps=tuple(_step(dict(zip(document["columns"], row, strict=True))) for row in document["steps"]),
        every=document["every"],
        progress=MetricsCursor.model_validate(document["progress"]),
    )


def _spaced(steps: Sequence[StepMetrics], every: int) -> list[StepMetrics]:
    return [step for step in steps if (step.step - steps[0].step) % every == 0 or step is steps[-1]]


def _written(value: Any) -> Any:
    match value:
        case datetime():
            return int(value.timestamp())
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case _:
            return value


def _step(row: dict[str, Any]) -> StepMetrics:
    numbers = {name: float(row[name]) for name in ("loss", "learning_rate", "throughput")}
    logged_at = datetime.fromtimestamp(row["logged_at"], UTC)
    return StepMetrics(logged_at=logged_at, epoch=row["epoch"], step=row["step"], **numbers)
