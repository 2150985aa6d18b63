"""Environment variables of the functions, a class for each subject.

A variable has the name of its field in capitals. `functions` says which classes a function is given: the stacks and the
twin set the variables of these classes, and the handlers read them as typed values.
"""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from trainflow.deployment.slurm import Site


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
JsonList = Annotated[tuple[str, ...], BeforeValidator(json.loads)]
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
    """Address of Slurm and description of its nodes; all fields are empty in a deployment without Slurm."""

    slurm_api_url: SlurmUrl
    """URL of slurmrestd; `ssm://<instance id>` of a machine with Slurm's commands if slurmrestd is not used."""
    slurm_key_secret: str
    """Secrets Manager's name of the key for tokens, in base64."""
    slurm_user: str
    """User that the jobs run as."""
    slurm_claims: JsonText
    """JSON object of further claims of a token, beside user and expiry: AWS PCS requires the user's ids there."""
    slurm_system_queue: str
    """Partition for staging and publishing; empty for Slurm's default partition."""
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
        """Description of the nodes."""
        return Site(
            shared_folder=self.slurm_shared_folder,
            environment=self.slurm_environment,
            program_folder=self.slurm_program_folder,
            small_programs_queue=self.slurm_system_queue or None,
            properties=self.slurm_properties,
        )


class ArtifactEnvironment(Settings):
    """Bucket of the runs' artifacts."""

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


class ImagesEnvironment(Settings):
    """Images that runs may use."""

    allowed_images: JsonList
    """JSON list of `images.allowed` of the configuration; empty where all are allowed."""


class OwnershipEnvironment(Settings):
    """Team and project of runs whose specs name none; empty in a deployment without a default."""

    default_team: str
    default_project: str


class NotificationEnvironment(Settings):
    """Channels of notifications."""

    topic_arn: TopicArn


class RunTableEnvironment(Settings):
    """DynamoDB table of the runs."""

    run_table: Name


class CacheEnvironment(Settings):
    """DynamoDB table of the compile caches."""

    cache_table: Name


class WorkflowEnvironment(Settings):
    """The state machine whose executions are the runs."""

    training_state_machine_arn: StateMachineArn


class LinkEnvironment(Settings):
    """Bucket that the file system is linked to; both fields are empty in a deployment without such a link."""

    linked_file_system: str
    """Id of the file system."""
    linked_url: S3Prefix
    """`s3://bucket/prefix/` of the objects that appear below `/data`."""


class ReapingEnvironment(Settings):
    """Time before idle nodes are released."""

    idle_minutes: Annotated[float, Field(ge=0)]

    @property
    def idle_time(self) -> timedelta:
        """`idle_minutes` as a duration."""
        return timedelta(minutes=self.idle_minutes)


class ReplacementEnvironment(Settings):
    """Treatment of nodes that runs avoid."""

    replace_bad_nodes: bool
    """Whether their instances are terminated, so that Auto Scaling starts others."""


class CapacityEnvironment(Settings):
    """Origin of the nodes of gangs."""

    cluster_makes_nodes: bool
    """Whether the cluster makes nodes for pending pods by itself; otherwise node groups of the deployment do."""


class RegionEnvironment(Settings):
    """Region of the function. Lambda sets it itself (Lambda developer guide, reserved environment variables)."""

    aws_region: Name
