"""Plan of a deployment for a spec: its answer to `trainflow plan`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from trainflow.workflow.run import Stage


class RunRequest(BaseModel):
    """A run that is asked for: the input of its execution, unchecked, and the execution's name, ARN and start."""

    spec: Any
    execution_name: str
    execution_arn: str
    started_at: datetime


class PlannedJob(BaseModel):
    """A job that the run would submit."""

    model_config = ConfigDict(frozen=True)

    stage: Stage
    name: str
    objects: tuple[dict[str, Any], ...]
    """Objects that would be created for it: Kubernetes objects; for Slurm, the input of `sbatch` with the script."""


# Decision 58: the function `Preflight` makes the plan with the code that submits the jobs.
class PlannedRun(BaseModel):
    """The jobs of the run, in their order, and the findings of the preflight without its probe."""

    model_config = ConfigDict(frozen=True)

    jobs: tuple[PlannedJob, ...] = ()
    problems: tuple[str, ...] = ()
    """Reasons that would prevent the start of the run; empty if none are known."""
    notes: tuple[str, ...] = ()
    """Notes about unchecked or uncertain points."""
