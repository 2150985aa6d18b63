"""What a function is told about its surroundings: read once, at the edge, with a type."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TypeVar


@dataclass(frozen=True)
class ClusterEnvironment:
    """Where the gang runs."""

    cluster_name: str
    namespace: str


@dataclass(frozen=True)
class ArtifactEnvironment:
    """Where results go."""

    artifact_bucket: str

    def url_of(self, run_id: str) -> str:
        """The folder of a run's artifacts."""
        return f"s3://{self.artifact_bucket}/{self.key_of(run_id, '')}"

    def key_of(self, run_id: str, name: str) -> str:
        """The key of one of a run's artifacts."""
        return f"runs/{run_id}/{name}"


@dataclass(frozen=True)
class NotificationEnvironment:
    """Who is told."""

    topic_arn: str


@dataclass(frozen=True)
class RunTableEnvironment:
    """Where runs are written down."""

    run_table: str


@dataclass(frozen=True)
class WorkflowEnvironment:
    """What a run is an execution of."""

    training_state_machine_arn: str


@dataclass(frozen=True)
class ReapingEnvironment:
    """When nodes have been idle for too long."""

    idle_minutes: str

    @property
    def idle_time(self) -> timedelta:
        """The same as a time."""
        return timedelta(minutes=float(self.idle_minutes))


Settings = TypeVar(
    "Settings",
    ClusterEnvironment,
    ArtifactEnvironment,
    NotificationEnvironment,
    RunTableEnvironment,
    WorkflowEnvironment,
    ReapingEnvironment,
)


def read(settings: type[Settings]) -> Settings:
    """The settings from the environment variables named as their fields, in capitals.

    Raises:
        KeyError: Naming the variable that the function was deployed without.
    """
    return settings(**{field.name: os.environ[field.name.upper()] for field in fields(settings)})
