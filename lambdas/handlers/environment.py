"""What a function is told about its surroundings: read once, at the edge, with a type."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import TypeVar

from trainflow.models.slurm import Site


@dataclass(frozen=True)
class ClusterEnvironment:
    """Where the gang runs."""

    cluster_name: str
    namespace: str


@dataclass(frozen=True)
class DeploymentEnvironment:
    """Which deployment this is."""

    deployment: str
    """Its name in the configuration."""


@dataclass(frozen=True)
class SlurmEnvironment:
    """Where Slurm is, and what its nodes look like; all are empty in a deployment without one."""

    slurm_api_url: str
    """Of slurmrestd; `ssm://<instance id>` of a machine with Slurm's commands, where there is none."""
    slurm_key_secret: str
    """Secrets Manager's name of the key for tokens, in base64."""
    slurm_user: str
    """Whom the jobs run as."""
    slurm_claims: str
    """JSON object of what a token says beside its user and its end."""
    slurm_system_queue: str
    """Partition of small programs; empty where it is Slurm's default."""
    slurm_shared_folder: str
    """Of the file system that all nodes mount."""
    slurm_environment: str
    """Folder of a Python virtual environment on the nodes."""
    slurm_program_folder: str
    """Where the `trainer` package and the specs' scripts lie."""
    slurm_properties: str
    """JSON object of environment variables for every job."""

    @property
    def site(self) -> Site:
        """What the nodes look like."""
        return Site(
            shared_folder=self.slurm_shared_folder,
            environment=self.slurm_environment,
            program_folder=self.slurm_program_folder,
            small_programs_queue=self.slurm_system_queue or None,
            properties=json.loads(self.slurm_properties or "{}"),
        )


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
class ToolsEnvironment:
    """What staging and publishing run in."""

    tools_image: str


@dataclass(frozen=True)
class NotificationEnvironment:
    """Who is told."""

    topic_arn: str


@dataclass(frozen=True)
class RunTableEnvironment:
    """Where runs are written down."""

    run_table: str


@dataclass(frozen=True)
class CacheEnvironment:
    """Where caches of compiled graphs are written down."""

    cache_table: str


@dataclass(frozen=True)
class WorkflowEnvironment:
    """What a run is an execution of."""

    training_state_machine_arn: str


@dataclass(frozen=True)
class LinkEnvironment:
    """Which data the file system shows without a copy; both are empty where there is no link."""

    linked_file_system: str
    """The file system's id."""
    linked_url: str
    """`s3://bucket/prefix/` of what it shows below `/data`."""


@dataclass(frozen=True)
class RegionEnvironment:
    """Where the function runs, as Lambda itself says (Lambda developer guide, reserved environment variables)."""

    aws_region: str


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
    DeploymentEnvironment,
    SlurmEnvironment,
    ArtifactEnvironment,
    ToolsEnvironment,
    NotificationEnvironment,
    RunTableEnvironment,
    CacheEnvironment,
    WorkflowEnvironment,
    LinkEnvironment,
    ReapingEnvironment,
    RegionEnvironment,
)


def read(settings: type[Settings]) -> Settings:
    """The settings from the environment variables named as their fields, in capitals.

    Raises:
        KeyError: Naming the variable that the function was deployed without.
    """
    return settings(**{field.name: os.environ[field.name.upper()] for field in fields(settings)})
