"""The event that Trainflow sends to EventBridge when a run has ended and its record has been written.

Its JSON schema is `config/run-ended.schema.json`, and docs/events.md has a rule that receives it. Fields are added and
never renamed; a change that a reader would notice gets another `schema_version`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from trainflow.links import execution_link, object_link
from trainflow.workflow.owner import OwnerKind
from trainflow.workflow.run_record import RunRecord, RunStatus

SOURCE = "trainflow"
DETAIL_TYPE = "Trainflow Run Ended"

MAX_TEXT_LENGTH = 2000
"""Longest text of an error in an event, which may have 256 KiB in all (EventBridge quotas)."""


SCHEMA_ID = "urn:trainflow:run-ended:1"


def _may_grow(schema: dict[str, Any]) -> None:
    """Allow more fields in the readers' schema. We send only these, later versions may add some."""
    schema.pop("additionalProperties", None)


class EndError(BaseModel):
    """Reason of the run's failure."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, json_schema_extra=_may_grow)

    name: str
    """Class name of the error, as in the state machines and in docs/runbooks.md."""
    message: str
    what_to_do: str


class EndOwner(BaseModel):
    """Who started the run."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True, json_schema_extra=_may_grow)

    kind: OwnerKind
    name: str
    """ARN of the caller, name of the schedule, account of the upload; empty if unknown."""


def _identified(schema: dict[str, Any]) -> None:
    _may_grow(schema)
    schema |= {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_ID}


class RunEnded(BaseModel):
    """Detail of the event `Trainflow Run Ended`."""

    model_config = ConfigDict(
        extra="forbid", use_attribute_docstrings=True, title="Trainflow Run Ended", json_schema_extra=_identified
    )

    schema_version: Literal[1] = 1
    deployment: str
    """Name of the deployment in its configuration."""
    run_id: str
    name: str | None
    """Name in the run spec; null for a run whose spec is invalid."""
    owner: EndOwner
    """Who started it."""
    team: str | None
    """Team of the spec, or the deployment's default; null without one."""
    project: str | None
    """The same for the project."""
    status: RunStatus
    """SUCCEEDED, FAILED, ABORTED or TIMED_OUT."""
    started_at: datetime
    ended_at: datetime
    error: EndError | None
    """Null for a run that succeeded, and for one that was stopped without a reason."""
    instance_type: str | None
    """Type of the nodes; null for a run that requested none."""
    steps: int | None
    """Steps of the training; null if it never began."""
    last_loss: float | None
    """Loss of the last logged step; null without a step, or if the loss is not finite."""
    non_finite_steps: int
    """Logged steps whose loss was NaN or infinite."""
    restarts: int
    """Jobs that failed and were submitted again."""
    estimated_usd: float | None
    """Estimated cost of the run's nodes; null where no price is known, and for a run that held none."""
    checkpoint: str | None
    """URL of the published checkpoint."""
    execution_arn: str
    folder: str
    """s3://bucket/prefix/ of run.json, report.html and the artifacts."""
    report_link: str
    """Page of the report in the AWS console."""
    execution_link: str
    """Page of the execution in the AWS console."""


def run_ended(record: RunRecord, *, deployment: str, execution_arn: str, folder: str, now: datetime) -> RunEnded:
    """Event about a run that has ended.

    Args:
        record: Its record.
        deployment: Name of the deployment.
        execution_arn: Its execution.
        folder: s3://bucket/prefix/ of its record.
        now: End of the run if the record does not contain it.
    """
    training, error, name = record.training, record.error, record.spec.get("name")
    loss = training.last_loss if training else None
    return RunEnded(
        deployment=deployment,
        run_id=record.run_id,
        name=name if isinstance(name, str) else None,
        owner=EndOwner(kind=record.owner.kind, name=record.owner.name),
        team=record.team,
        project=record.project,
        status=record.status,
        started_at=record.started_at,
        ended_at=record.ended_at or now,
        error=error
        and EndError(
            name=error.name,
            message=error.message[:MAX_TEXT_LENGTH],
            what_to_do=error.what_to_do[:MAX_TEXT_LENGTH],
        ),
        instance_type=record.instance_type,
        steps=training.steps if training else None,
        last_loss=loss if loss is not None and abs(loss) < float("inf") else None,
        non_finite_steps=training.non_finite_steps if training else 0,
        restarts=len(record.restarts),
        estimated_usd=record.cost.usd if record.cost else None,
        checkpoint=training.checkpoint if training else None,
        execution_arn=execution_arn,
        folder=folder,
        report_link=object_link(f"{folder}report.html", execution_arn),
        execution_link=execution_link(execution_arn),
    )
