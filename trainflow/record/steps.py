"""The logged steps and checkpoints that the workflow stores, in one small document whatever the training's length.

`PublishMetrics` adds what each poll found to `steps.json` beside the run's artifacts; the record and the report are
made of it. A poll that is tried again adds the same steps again, which changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from math import isfinite
from statistics import median
from typing import Any

from trainflow.observed.step import Step, announced_length
from trainflow.protocol.checkpoint_line import CheckpointReport
from trainflow.protocol.lost_files import LostFiles
from trainflow.protocol.metric_aliases import SEQUENCES, number, whole
from trainflow.protocol.reported_checkpoints import Reported
from trainflow.record.placement import Placement
from trainflow.record.published import latest_of_each_step
from trainflow.record.wording import data_of_speed
from trainflow.workflow.run import InPlaceRestart, LinesSinceStep, MetricsCursor, StepsAgain

FILE_NAME = "steps.json"

MAX_STEPS = 1000
"""Most steps in the document: the number of columns of a chart, in about 100 KB. The document is read and written once
a poll."""

COLUMNS = ("logged_at", "epoch", "step", "loss", "learning_rate", "throughput")
"""Fields of a step in the document."""

METRIC = "metrics."
"""Begins the column of a further figure."""

MAX_CHECKPOINTS = 20
"""Most checkpoints in the document."""

MAX_METRIC_COLUMNS = 20
"""Most further figures in the document."""


@dataclass(frozen=True, kw_only=True)
class KeptSteps:
    """Evenly spaced steps of a training, all of them if it has logged no more than `MAX_STEPS`."""

    steps: tuple[Step, ...] = ()
    """The steps in order: the first, those whose distance from it is a multiple of `every`, and the newest."""
    every: int = 1
    """Distance of two stored steps, a power of two."""
    progress: MetricsCursor = field(default_factory=MetricsCursor)
    """Position up to the last step that was published to CloudWatch."""
    checkpoints: tuple[CheckpointReport, ...] = ()
    """The newest checkpoints, in the order of writing."""
    placement: Placement | None = None
    """Place of the training; None until its pods are about to be deleted, and on Slurm."""

    @property
    def sequences_per_second(self) -> float | None:
        """Median throughput of the kept steps, over all ranks; None where the program does not say it."""
        return median_throughput(self.steps)

    @property
    def last_metrics(self) -> dict[str, float]:
        """The newest value of each further figure of the program."""
        newest: dict[str, float] = {}
        for step in self.steps:
            newest.update((name, value) for name, value in step.metrics.items() if isfinite(value))
        return dict(list(newest.items())[:MAX_METRIC_COLUMNS])

    def extended(
        self, steps: Sequence[Step], progress: MetricsCursor, checkpoints: Sequence[CheckpointReport] = ()
    ) -> KeptSteps:
        """Add more steps, and checkpoints; for a step that is stored already, the newer line counts."""
        known, every = latest_of_each_step([*self.steps, *steps]), self.every
        kept = _spaced(known, every)
        while len(kept) > MAX_STEPS:
            every *= 2
            kept = _spaced(known, every)
        return KeptSteps(
            steps=tuple(kept),
            every=every,
            progress=progress,
            checkpoints=newest_checkpoints([*self.checkpoints, *checkpoints]),
            placement=self.placement,
        )

    def to_json(self) -> str:
        """Content of `steps.json`. Numbers that JSON does not have are written as words."""
        names = list(dict.fromkeys(name for step in self.steps for name in step.metrics))[:MAX_METRIC_COLUMNS]
        rows = [
            [*(getattr(step, column) for column in COLUMNS), *(step.metrics.get(name) for name in names)]
            for step in self.steps
        ]
        document = {
            "every": self.every,
            "throughput_of": throughput_of(self.steps),
            "length": announced_length(self.steps),
            "progress": self.progress.model_dump(mode="json"),
            "checkpoints": [[saved.step, _written(saved.saved_at), saved.num_bytes] for saved in self.checkpoints],
            "placement": self.placement and [list(self.placement.nodes), *_times(self.placement)],
            "columns": [*COLUMNS, *(f"{METRIC}{name}" for name in names)],
            "steps": [[_written(value) for value in row] for row in rows],
        }
        return json.dumps(document, allow_nan=False)


def throughput_of(steps: Sequence[Step]) -> str:
    """Unit that the throughput of a training counts, such as `sequences`: that of its newest step."""
    return steps[-1].throughput_of if steps else SEQUENCES


def median_throughput(steps: Sequence[Step]) -> float | None:
    """Median throughput of steps, over all ranks; of more than `MAX_STEPS`, of as many that are evenly spaced."""
    spaced = steps[:: -(-len(steps) // MAX_STEPS) or 1]
    said = [step.throughput for step in spaced if step.throughput is not None]
    return round(median(said), 2) if said else None


def median_speeds(steps: Sequence[Step]) -> dict[str, float]:
    """Median of each speed by the data that it counts (`data_of_speed`): of the throughput and of further figures.

    Of more than `MAX_STEPS` steps, as many count that are evenly spaced; of two figures of the same data, the first.
    """
    names: dict[str, str] = {}
    said: dict[str, list[float]] = {}
    for step in steps[:: -(-len(steps) // MAX_STEPS) or 1]:
        for name, value in step.metrics.items():
            data = data_of_speed(name)
            if data is not None and isfinite(value) and names.setdefault(data, name) == name:
                said.setdefault(data, []).append(value)
    speeds = {data: round(median(values), 2) for data, values in said.items()}
    throughput = median_throughput(steps)
    return speeds if throughput is None else {**speeds, throughput_of(steps): throughput}


def newest_checkpoints(reported: Iterable[CheckpointReport]) -> tuple[CheckpointReport, ...]:
    """The newest checkpoints in the order of writing, each once: a restarted job writes some steps again."""
    latest = {saved.step: saved for saved in reported}
    return tuple(sorted(latest.values(), key=lambda saved: (saved.saved_at, saved.step))[-MAX_CHECKPOINTS:])


def kept_steps_of(
    lines: Sequence[Step],
    checkpoints: Iterable[CheckpointReport] = (),
    *,
    lost_files: LostFiles | None = None,
    since_step: LinesSinceStep | None = None,
    reported_checkpoint: Reported | None = None,
    in_place: Sequence[InPlaceRestart] = (),
    steps_again: Sequence[StepsAgain] = (),
) -> KeptSteps:
    """The steps, checkpoints, lost files and restarts that would have been stored of these lines."""
    since_step = since_step or LinesSinceStep()
    steps, newest = latest_of_each_step(lines), newest_checkpoints(checkpoints)
    told: dict[str, Any] = {
        "lost_files": lost_files,
        "since_step": since_step,
        "reported_checkpoint": reported_checkpoint,
        "in_place": tuple(in_place),
        "steps_again": tuple(steps_again),
    }
    if not steps:
        progress = MetricsCursor(**told)
        return KeptSteps(checkpoints=newest, progress=progress)
    non_finite = non_finite_steps(steps)
    progress = MetricsCursor(
        first_step=steps[0].step,
        last_step=steps[-1].step,
        datapoints=len(steps),
        non_finite_steps=len(non_finite),
        first_non_finite_step=next(iter(non_finite), None),
        **newest_losses(MetricsCursor(), steps),
        **told,
    )
    return KeptSteps().extended(steps, progress, newest)


def newest_losses(cursor: MetricsCursor, steps: Sequence[Step]) -> dict[str, Any]:
    """Fields of a cursor about the newest losses, after more steps: where the row of losses that are not finite began.

    Args:
        cursor: The cursor before them.
        steps: The steps in the order of the log.
    """
    row, since, last_finite = cursor.non_finite_in_a_row, cursor.non_finite_since, cursor.last_finite_step
    for step in steps:
        if step.loss is None:
            continue
        if isfinite(step.loss):
            row, since, last_finite = 0, None, step.step
        else:
            row, since = row + 1, since or step.logged_at
    return {"non_finite_in_a_row": row, "non_finite_since": since, "last_finite_step": last_finite}


def non_finite_steps(steps: Sequence[Step]) -> list[int]:
    """Steps whose loss is NaN or infinite."""
    return [step.step for step in steps if step.loss is not None and not isfinite(step.loss)]


def kept_steps_from_json(text: str | bytes) -> KeptSteps:
    """Read the content that `to_json` wrote.

    Returns:
        The kept steps; empty for other documents: every program of a run may write objects there.
    """
    try:
        return _kept_steps(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, OSError, RecursionError):
        return KeptSteps()


def _kept_steps(document: Any) -> KeptSteps:
    counted = _text(document.get("throughput_of", SEQUENCES))  # documents of earlier versions do not say it
    length = document.get("length")
    length = None if length is None else _whole(length)
    return KeptSteps(
        steps=tuple(
            _step(dict(zip(document["columns"], row, strict=True)), counted, length) for row in document["steps"]
        ),
        every=max(_whole(document["every"]), 1),
        progress=MetricsCursor.model_validate(document["progress"]),
        checkpoints=tuple(
            CheckpointReport(
                step=_whole(step),
                saved_at=datetime.fromtimestamp(saved_at, UTC),
                num_bytes=None if num_bytes is None else _whole(num_bytes),
            )
            for step, saved_at, num_bytes in document.get("checkpoints", ())
        ),
        placement=_placement(document.get("placement")),
    )


def _times(placement: Placement) -> list[float]:
    return [placement.started_at.timestamp(), placement.ended_at.timestamp()]


def _placement(row: Sequence[Any] | None) -> Placement | None:
    """None also in documents of earlier versions."""
    if row is None:
        return None
    nodes, started_at, ended_at = row
    return Placement(
        nodes=tuple(map(_text, nodes)),
        started_at=datetime.fromtimestamp(started_at, UTC),
        ended_at=datetime.fromtimestamp(ended_at, UTC),
    )


def _spaced(steps: Sequence[Step], every: int) -> list[Step]:
    return [step for step in steps if (step.step - steps[0].step) % every == 0 or step is steps[-1]]


def _written(value: Any) -> Any:
    match value:
        case datetime():
            return int(value.timestamp())
        case float() if value != value or value in (float("inf"), float("-inf")):
            return str(value)
        case _:
            return value


def _step(row: dict[str, Any], counted: str, length: int | None) -> Step:
    metrics = {
        name.removeprefix(METRIC): found
        for name, value in row.items()
        if name.startswith(METRIC) and (found := _number(value)) is not None
    }
    epoch = _number(row["epoch"])
    return Step(
        logged_at=datetime.fromtimestamp(row["logged_at"], UTC),
        epoch=int(epoch) if epoch is not None and epoch.is_integer() else epoch,
        step=_whole(row["step"]),
        loss=_number(row["loss"]),
        learning_rate=_number(row["learning_rate"]),
        throughput=_number(row["throughput"]),
        metrics=metrics,
        throughput_of=counted,
        length=length,
    )


def _number(value: Any) -> float | None:
    found = number(value)
    if found is None and value is not None:
        raise TypeError(f"{value!r} is no number")
    return found


def _whole(value: Any) -> int:
    found = whole(value)
    if found is None:
        raise TypeError(f"{value!r} is no whole number")
    return found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value
