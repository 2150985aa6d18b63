"""What a deployment would make of a spec: its answer to `trainflow plan`."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from trainflow.models.run import Stage


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
    """What would be created for it: Kubernetes objects; for Slurm, what `sbatch` is given, with the script."""


class PlannedRun(BaseModel):
    """The jobs of the run, in their order, and what the preflight can tell without its probe."""

    model_config = ConfigDict(frozen=True)

    jobs: tuple[PlannedJob, ...] = ()
    problems: tuple[str, ...] = ()
    """Why the run could not start; empty if nothing is known that prevents it."""
    notes: tuple[str, ...] = ()
    """What was not checked, or may differ."""
