"""The run record (`run.json`): what happened, for people and for programs that compare runs."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid")


class RunStatus(StrEnum):
    """How a run ended, in Step Functions' words."""

    RUNNING = "RUNNING"
    SUCCEEDED = "SUCCEEDED"
    FAILED = "FAILED"
    ABORTED = "ABORTED"
    TIMED_OUT = "TIMED_OUT"


class RunError(_Entry):
    name: str
    """Class name of the error, as in `trainflow/errors.py` and in the state machines."""
    message: str
    what_to_do: str


class StateVisit(_Entry):
    name: str
    entered_at: datetime
    exited_at: datetime | None = None
    """None for the state in which the execution ended early."""
    attempts: int = 1
    """Tries of the state's task, the first one counted."""
    execution: str = ""
    """Name of the execution it belongs to: the run's own or a watch window's."""


class Execution(_Entry):
    arn: str
    state_machine: str
    events: int
    """History events; an execution may have 25,000."""


class Pod(_Entry):
    name: str
    node: str | None = None
    phase: str
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    message: str | None = None
    """Termination message or reason of a failed pod."""


class Job(_Entry):
    name: str
    attempts: int = 1
    phase: str
    pods: list[Pod] = Field(default_factory=list)
    rank0: str | None = None
    """Name of the pod of rank 0; None for jobs of a single program."""


class Compilation(_Entry):
    graphs: int
    succeeded: int
    failed: int
    cache: str
    """`hit`, `miss` or `partial`: how many of the graphs were in the cache already."""


class Training(_Entry):
    steps: int
    first_loss: float | None = None
    last_loss: float | None = None
    sequences_per_second: float | None = None
    """Median over the logged steps, all ranks together; of a long training over a thousand evenly spaced ones."""
    checkpoint: str | None = None
    """URL of the final checkpoint."""


class MetricsPublished(_Entry):
    datapoints: int
    first_step: int | None = None
    last_step: int | None = None
    gaps: int | None = None
    """Steps in rank 0's log that CloudWatch lacks; None where the two were not compared, as in the workflow."""
    duplicates: int | None = None
    """Data points in CloudWatch beyond one a step; None as above."""
    log_rotations: int = 0
    """Polls that found rank 0's log replaced by a new file: the lines after the poll before were not read."""


class RunRecord(_Entry):
    """Everything that is known of a run."""

    run_id: str
    status: RunStatus
    error: RunError | None = None
    spec: dict[str, Any]
    started_at: datetime
    ended_at: datetime | None = None
    states: list[StateVisit] = Field(default_factory=list)
    executions: list[Execution] = Field(default_factory=list)
    jobs: dict[str, Job] = Field(default_factory=dict)
    """Jobs by stage; the workflow's own record has the gangs, with their failed pods alone."""
    compile: Compilation | None = None
    training: Training | None = None
    metrics_published: MetricsPublished | None = None
    overhead_seconds: float | None = None
    """Wall time of the execution during which no pod of the run was running; None where the pods were not watched."""
    not_checked: list[str] = Field(default_factory=list)
    """What preflight could not check, a sentence each."""
    diagnostics: list[dict[str, Any]] = Field(default_factory=list)
    """Reason and last lines of each unhealthy pod of a failed run, read before tear-down."""
