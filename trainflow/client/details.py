"""What is known of one run, in one shape for people and programs, at every place and at every moment of the run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from trainflow.models.run_record import RunError, RunRecord, RunStatus
from trainflow.models.total_steps import total_steps

if TYPE_CHECKING:  # the status of a run that has ended is its record: it needs nothing that observes one
    from trainflow.client.observe.snapshot import RunSnapshot
    from trainflow.record.pods import PodView

VERSION = 1
"""Version of the JSON documents; fields are added without a new one."""


@dataclass(frozen=True, kw_only=True)
class PodDetails:
    """A pod of a run, or what stands for one on Slurm."""

    name: str
    stage: str
    phase: str
    node: str | None = None
    attempt: int | None = None
    """Start of its job that it belongs to, counted from 1; None where only the record is left."""
    reason: str | None = None
    exit_code: int | None = None
    message: str | None = None


@dataclass(frozen=True, kw_only=True)
class RunDetails:
    """A run now, or as it ended."""

    run_id: str
    status: RunStatus
    started_at: datetime | None
    ended_at: datetime | None = None
    state: str | None = None
    """State of the state machine; None once the run has ended."""
    step: int | None = None
    """Newest step that the program reported."""
    total_steps: int | None = None
    loss: float | None = None
    """Loss of that step; it may be NaN or infinite."""
    throughput: float | None = None
    """Sequences per second over all ranks, median of the latest steps; None where the program does not say it."""
    seconds_left: float | None = None
    cost_usd: float | None = None
    """Estimate of what the run's nodes have cost so far; None where no price is known, and before it had any."""
    pods: Sequence[PodDetails] = ()
    error: RunError | None = None
    warnings: Sequence[str] = ()
    trouble: str | None = None
    """Why a part of this is not known, such as pods without access to the cluster."""

    def as_json(self) -> dict[str, Any]:
        """The document that `trainflow status --json` prints. A loss that JSON has no number for is a word."""
        document = asdict(self)
        document["error"] = self.error.model_dump() if self.error else None
        document["started_at"], document["ended_at"] = (_written(at) for at in (self.started_at, self.ended_at))
        if self.loss is not None and not isfinite(self.loss):
            document["loss"] = str(self.loss)
        return {"version": VERSION, **document, "status": self.status.value}


def details_of_snapshot(snapshot: RunSnapshot) -> RunDetails:
    """What was observed."""
    last = snapshot.steps[-1] if snapshot.steps else None
    return RunDetails(
        run_id=snapshot.run_id,
        status=snapshot.status,
        started_at=snapshot.started_at,
        ended_at=snapshot.ended_at,
        state=snapshot.current_state,
        step=last.step if last else None,
        total_steps=snapshot.total_steps,
        loss=last.loss if last else None,
        throughput=snapshot.sequences_per_second,
        seconds_left=snapshot.seconds_left,
        cost_usd=snapshot.cost.usd if snapshot.cost else None,
        pods=[_pod_details(pod) for pod in snapshot.pods],
        error=snapshot.error,
        warnings=snapshot.warnings,
        trouble=snapshot.trouble,
    )


def details_of_record(record: RunRecord) -> RunDetails:
    """What the record of an ended run says."""
    training, published = record.training, record.metrics_published
    last_step = published.last_step if published else None
    return RunDetails(
        run_id=record.run_id,
        status=record.status,
        started_at=record.started_at,
        ended_at=record.ended_at,
        step=last_step if last_step is not None or training is None else training.steps,
        total_steps=total_steps(record.spec, None),
        loss=training.last_loss if training else None,
        throughput=training.sequences_per_second if training else None,
        cost_usd=record.cost.usd if record.cost else None,
        pods=[
            PodDetails(
                name=pod.name,
                stage=stage,
                phase=pod.phase,
                node=pod.node,
                exit_code=pod.exit_code,
                message=pod.message,
            )
            for stage, job in record.jobs.items()
            for pod in job.pods
        ],
        error=record.error,
        warnings=record.warnings,
    )


def _pod_details(pod: PodView) -> PodDetails:
    return PodDetails(
        name=pod.name,
        stage=pod.stage,
        phase=pod.phase,
        node=pod.node,
        attempt=pod.attempt,
        reason=pod.reason,
        exit_code=pod.exit_code,
        message=pod.message,
    )


def _written(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
