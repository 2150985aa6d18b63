"""Data of a run for trackers, in their common terms: parameters, tags, metrics by step, and files."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from trainflow.observed.step import Step
from trainflow.record.comparison import flattened, value_text
from trainflow.workflow.run_record import RunRecord, RunStatus

OWN = ("loss", "learning_rate", "throughput", "epoch")
"""Figures of a step that Trainflow defines itself; `throughput` is in sequences or samples per second."""

_ODD_LETTER = re.compile(r"[^A-Za-z0-9_\-. /]")


# Decision 39: trackers get an export of the run's record, so a run does not depend on them.
@dataclass(frozen=True, kw_only=True)
class Point:
    """The figures of one step."""

    step: int
    logged_at: datetime
    figures: Mapping[str, float]
    """Values by names that every tracker takes; a value may be NaN or infinite."""


@dataclass(frozen=True, kw_only=True)
class ExportedRun:
    """A run, as trackers take it."""

    run_id: str
    name: str
    """The spec's name. Trackers group runs by it."""
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None
    spec: Mapping[str, Any]
    parameters: Mapping[str, str]
    """Fields of the spec by their dotted names; numbers and lists are JSON."""
    tags: Mapping[str, str]
    """Identity of what the run was made of, its cost, and how it ended; unknown facts are left out."""
    points: Sequence[Point]
    files: Mapping[str, Path]
    """Files to upload, by their names below the run."""


def exported_run(record: RunRecord, steps: Sequence[Step], files: Mapping[str, Path]) -> ExportedRun:
    """The run of a record.

    Args:
        record: What happened so far.
        steps: Logged steps in their order, each once.
        files: Files to upload, by their names below the run.
    """
    return ExportedRun(
        run_id=record.run_id,
        name=str(record.spec.get("name") or record.run_id),
        status=record.status,
        started_at=record.started_at,
        ended_at=record.ended_at,
        spec=record.spec,
        parameters={name: value_text(value) for name, value in flattened(record.spec) if value is not None},
        tags={name: value for name, value in _tags(record).items() if value},
        points=[point for step in steps if (point := _point(step)).figures],
        files=files,
    )


def _tags(record: RunRecord) -> dict[str, str | None]:
    made_of, error, cost = record.inputs, record.error, record.cost
    tags: dict[str, str | None] = {
        "trainflow.run_id": record.run_id,
        "trainflow.execution_arn": record.executions[0].arn if record.executions else None,
        "trainflow.instance_type": record.instance_type,
        "trainflow.restarts": str(len(record.restarts)),
        "trainflow.error": f"{error.name}: {error.message}" if error else None,
        "trainflow.estimated_usd": f"{cost.usd:.4f}" if cost and cost.usd is not None else None,
        "trainflow.checkpoint": record.training.checkpoint if record.training else None,
    }
    if made_of is not None:
        tags |= {
            "trainflow.git_commit": made_of.git_commit,
            "trainflow.code_sha256": made_of.code_sha256,
            "trainflow.image_digest": made_of.image_digest,
            "trainflow.dataset_url": made_of.dataset_url,
            "trainflow.dataset_version": made_of.dataset_etag or made_of.dataset_sha256,
            **{f"trainflow.package.{name}": version for name, version in made_of.packages.items()},
        }
    return tags


def _point(step: Step) -> Point:
    own = {name: getattr(step, name) for name in OWN}
    figures = {**own, **{_ODD_LETTER.sub("_", name): value for name, value in step.metrics.items()}}
    known = {name: float(value) for name, value in figures.items() if value is not None}
    return Point(step=step.step, logged_at=step.logged_at, figures=known)
