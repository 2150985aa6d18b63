"""What is known of one run, in one shape for people and programs, at every place and at every moment of the run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from math import isfinite
from typing import TYPE_CHECKING, Any

from trainflow.models.run_error import RunError
from trainflow.models.run_status import RunStatus
from trainflow.models.total_steps import total_steps
from trainflow.protocol.metric_aliases import SEQUENCES

if TYPE_CHECKING:  # the status of a run that has ended needs neither what observes one nor a pydantic model
    from trainflow.client.observe.snapshot import RunSnapshot
    from trainflow.models.run_record import RunRecord
    from trainflow.observed.pod import Pod

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
    """Sequences or samples per second over all ranks, median of the latest steps; None where the program does not say
    it."""
    throughput_of: str = SEQUENCES
    """What the throughput counts: `sequences` or `samples`."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Newest value of each further figure that the program reports, under its own name."""
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
        document["started_at"], document["ended_at"] = (_written(at) for at in (self.started_at, self.ended_at))
        document["loss"] = _number(self.loss)
        document["metrics"] = {name: _number(value) for name, value in self.metrics.items()}
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
        throughput_of=last.throughput_of if last else SEQUENCES,
        metrics=last.metrics if last else {},
        seconds_left=snapshot.seconds_left,
        cost_usd=snapshot.cost.usd if snapshot.cost else None,
        pods=[_pod_details(pod) for pod in snapshot.pods],
        error=snapshot.error,
        warnings=snapshot.warnings,
        trouble=snapshot.trouble,
    )


def details_of_record(record: RunRecord) -> RunDetails:
    """What the record of an ended run says."""
    return details_of_document(record.model_dump(mode="json", include=READ))


READ = {
    *("run_id", "status", "started_at", "ended_at", "spec", "error", "warnings", "cost"),
    *("jobs", "training", "metrics_published"),
}
"""Fields of a record that are read here."""


def details_of_document(record: Mapping[str, Any]) -> RunDetails:
    """The same of a record's JSON document, whose other fields may be those of another version.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: If it is no record.
    """
    training, published = record.get("training") or {}, record.get("metrics_published") or {}
    last_step, error, ended_at = published.get("last_step"), record.get("error"), record.get("ended_at")
    return RunDetails(
        run_id=record["run_id"],
        status=RunStatus(record["status"]),
        started_at=datetime.fromisoformat(record["started_at"]),
        ended_at=datetime.fromisoformat(ended_at) if ended_at is not None else None,
        step=last_step if last_step is not None else training.get("steps") or None,
        total_steps=total_steps(record["spec"], None),
        loss=float(loss) if (loss := training.get("last_loss")) is not None else None,  # NaN is a word in JSON
        throughput=training.get("sequences_per_second"),
        throughput_of=training.get("throughput_of") or SEQUENCES,
        metrics=training.get("last_metrics") or {},
        cost_usd=(record.get("cost") or {}).get("usd"),
        pods=[
            PodDetails(
                name=pod["name"],
                stage=stage,
                phase=pod["phase"],
                node=pod.get("node"),
                exit_code=pod.get("exit_code"),
                message=pod.get("message"),
            )
            for stage, job in (record.get("jobs") or {}).items()
            for pod in job.get("pods") or ()
        ],
        error=RunError(**error) if error is not None else None,
        warnings=record.get("warnings") or [],
    )


def _pod_details(pod: Pod) -> PodDetails:
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


def _number(value: float | None) -> float | str | None:
    """A number as JSON has it, or a word."""
    return value if value is None or isfinite(value) else str(value)


def _written(at: datetime | None) -> str | None:
    return at.isoformat() if at else None
