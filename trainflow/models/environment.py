"""What functions are told about their surroundings, a class for each subject: the one list of environment variables.

A variable has the name of its field in capitals. `functions` says which classes a function is given; from there the
stacks and the twin take the names that they set, and the handlers read the values, with a type.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from trainflow.models.slurm import Site


def _json_object(text: str) -> dict[str, Any]:
    document = json.loads(text or "{}")
    if not isinstance(document, dict):
        raise ValueError("this is not a JSON object")
    return document


def _checked(text: str) -> str:
    _json_object(text)
    return text


Name = Annotated[str, Field(min_length=1)]
TopicArn = Annotated[str, Field(pattern=r"^arn:aws[-a-z]*:sns:[-a-z0-9]+:\d{12}:\S+$")]
StateMachineArn = Annotated[str, Field(pattern=r"^arn:aws[-a-z]*:states:[-a-z0-9]+:\d{12}:stateMachine:\S+$")]
SlurmUrl = Annotated[str, Field(pattern=r"^((https?|ssm)://\S+)?$")]
S3Prefix = Annotated[str, Field(pattern=r"^(s3://[^/\s]+/.*)?$")]
JsonText = Annotated[str, AfterValidator(_checked)]
JsonObject = Annotated[dict[str, str], BeforeValidator(_json_object)]


class Settings(BaseModel):
    """Variables that belong together."""

    model_config = ConfigDict(frozen=True)

    @classmethod
    def variables(cls) -> tuple[str, ...]:
        """Names of the environment variables, in the order of the fields."""
        return tuple(name.upper() for name in cls.model_fields)


class ClusterEnvironment(Settings):
    """The Kubernetes cluster that runs the gangs."""

    cluster_name: Name
    namespace: Name


class DeploymentEnvironment(Settings):
    """The deployment whose metrics a function publishes."""

    deployment: Name
    """Its name in the configuration."""


class SlurmEnvironment(Settings):
    """Where Slurm is, and what its nodes look like; all are empty in a deployment without one."""

    slurm_api_url: SlurmUrl
    """URL of slurmrestd; `ssm://<instance id>` of a machine with Slurm's commands, where there is none."""
    slurm_key_secret: str
    """Secrets Manager's name of the key for tokens, in base64."""
    slurm_user: str
    """User that the jobs run as."""
    slurm_claims: JsonText
    """JSON object of what a token says beside its user and its end: AWS PCS wants the user's ids there."""
    slurm_system_queue: str
    """Partition of small programs; empty where it is Slurm's default."""
    slurm_shared_folder: str
    """Folder of the file system that all nodes mount."""
    slurm_environment: str
    """Folder of a Python virtual environment on the nodes."""
    slurm_program_folder: str
    """Folder of the `trainer` package and the specs' scripts."""
    slurm_properties: JsonObject
    """JSON object of environment variables for every job."""

    @property
    def site(self) -> Site:
        """What the nodes look like."""
        return Site(
            shared_folder=self.slurm_shared_folder,
            environment=self.slurm_environment,
            program_folder=self.slurm_program_folder,
            small_programs_queue=self.slurm_system_queue or None,
            properties=self.slurm_properties,
        )


class ArtifactEnvironment(Settings):
    """Where results go."""

    artifact_bucket: Name

    def url_of(self, run_id: str) -> str:
        """The folder of a run's artifacts."""
        return f"s3://{self.artifact_bucket}/{self.key_of(run_id, '')}"

    def key_of(self, run_id: str, name: str) -> str:
        """The key of one of a run's artifacts."""
        return f"runs/{run_id}/{name}"


class ToolsEnvironment(Settings):
    """The image that staging and publishing run in."""

    tools_image: Name


class NotificationEnvironment(Settings):
    """The channels that messages go over."""

    topic_arn: TopicArn


class RunTableEnvironment(Settings):
    """Where runs are written down."""

    run_table: Name


class CacheEnvironment(Settings):
    """Where caches of compiled graphs are written down."""

    cache_table: Name


class WorkflowEnvironment(Settings):
    """The state machine whose executions are the runs."""

    training_state_machine_arn: StateMachineArn


class LinkEnvironment(Settings):
    """Data that the file system shows without a copy; both are empty in a deployment without such a link."""

    linked_file_system: str
    """Id of the file system."""
    linked_url: S3Prefix
    """`s3://bucket/prefix/` of what it shows below `/data`."""


class ReapingEnvironment(Settings):
    """When nodes have been idle for too long."""

    idle_minutes: Annotated[float, Field(ge=0)]

    @property
    def idle_time(self) -> timedelta:
        """The same as a time."""
        return timedelta(minutes=self.idle_minutes)


class RegionEnvironment(Settings):
    """Where the function runs. Lambda sets it itself (Lambda developer guide, reserved environment variables)."""

    aws_region: Name
