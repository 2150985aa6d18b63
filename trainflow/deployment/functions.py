"""Every Lambda function: the stacks deploy this list and the twin runs it.

Timeouts cover a cold start and one retry of a slow call; the state machines' TimeoutSeconds are a little longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainflow.deployment.environment import (
    ArtifactEnvironment,
    CacheEnvironment,
    CapacityEnvironment,
    ClusterEnvironment,
    DeploymentEnvironment,
    ImagesEnvironment,
    LinkEnvironment,
    NotificationEnvironment,
    OwnershipEnvironment,
    ReapingEnvironment,
    ReplacementEnvironment,
    RunTableEnvironment,
    Settings,
    SlurmEnvironment,
    ToolsEnvironment,
    WorkflowEnvironment,
)
from trainflow.deployment.kubernetes_access import Access

LIVE = "live"
"""Alias for calls by events. It moves to a new version after that version's snapshot has been taken."""


def deployed_name(deployment: str, function: str) -> str:
    """Name of a function in the account."""
    return f"{deployment}-{function}"


CLUSTER = (ClusterEnvironment, SlurmEnvironment)
"""Settings of functions that reach what runs the jobs, EKS or Slurm: the run says which of the two it is."""
NODES = (ClusterEnvironment,)
"""Settings of functions that read metrics of the cluster's nodes, and do not reach it."""
METRICS = (DeploymentEnvironment,)
"""Settings of functions that name their deployment: in metrics, and in the event about a run's end."""
ARTIFACTS = (ArtifactEnvironment,)
NOTIFICATIONS = (NotificationEnvironment,)
RUNS = (RunTableEnvironment,)
CACHES = (CacheEnvironment,)
WORKFLOW = (WorkflowEnvironment,)
REAPING = (ReapingEnvironment,)
REPLACEMENT = (ReplacementEnvironment,)
CAPACITY = (CapacityEnvironment,)
TOOLS = (ToolsEnvironment,)
IMAGES = (ImagesEnvironment,)
OWNERSHIP = (OwnershipEnvironment,)
LINKED = (LinkEnvironment,)

SLURM = SlurmEnvironment.variables()
LINK = LinkEnvironment.variables()
"""Variables that are empty in a deployment without Slurm, and in one without a link."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """One handler module as a Lambda function."""

    name: str
    """Name of the function, as in the state machines' placeholders."""
    module: str
    settings: tuple[type[Settings], ...]
    """Settings in its environment variables."""
    access: Access | None = None
    """Its Kubernetes group; None for functions that do not talk to the cluster."""
    timeout_seconds: int = 60
    memory_mib: int = 512

    @property
    def environment(self) -> tuple[str, ...]:
        """Names of the environment variables that are set for it."""
        return tuple(variable for settings in self.settings for variable in settings.variables())

    @property
    def handler(self) -> str:
        """The handler in Lambda's notation, `module.function`."""
        return f"lambdas.handlers.{self.module}.lambda_handler"


TASKS = (
    Function(name="ValidateRun", module="validate_run", settings=RUNS + LINKED + TOOLS + IMAGES + OWNERSHIP),
    Function(
        name="Preflight",
        module="preflight",
        settings=CLUSTER + CAPACITY + ARTIFACTS + CACHES + LINKED + TOOLS + IMAGES + OWNERSHIP,
        access=Access.EXAMINE,
    ),
    Function(name="AcquireCache", module="acquire_cache", settings=CACHES),
    Function(
        name="EnsureCapacity",
        module="ensure_capacity",
        settings=CLUSTER + CAPACITY + REPLACEMENT + ARTIFACTS,
        access=Access.SCALE,
    ),
    Function(
        name="StageData", module="stage_data", settings=CLUSTER + ARTIFACTS + LINKED + METRICS, access=Access.SUBMIT
    ),
    Function(name="SubmitJob", module="submit_job", settings=CLUSTER + CAPACITY + ARTIFACTS, access=Access.SUBMIT),
    Function(name="PollJob", module="poll_job", settings=CLUSTER + ARTIFACTS, access=Access.WATCH),
    Function(name="LocateRank0", module="locate_rank0", settings=CLUSTER + ARTIFACTS, access=Access.WATCH),
    Function(
        name="PublishMetrics", module="publish_metrics", settings=CLUSTER + ARTIFACTS + METRICS, access=Access.WATCH
    ),
    Function(
        name="CheckCompilation",
        module="check_compilation",
        settings=CLUSTER + ARTIFACTS + CACHES,
        access=Access.WATCH,
    ),
    Function(name="PublishArtifacts", module="publish_artifacts", settings=CLUSTER + ARTIFACTS, access=Access.SUBMIT),
    Function(
        name="CollectDiagnostics", module="collect_diagnostics", settings=CLUSTER + ARTIFACTS, access=Access.WATCH
    ),
    Function(
        name="TearDown",
        module="tear_down",
        settings=CLUSTER + CAPACITY + ARTIFACTS + CACHES + METRICS,
        access=Access.CLEAN_UP,
        timeout_seconds=210,
    ),
    Function(
        name="WriteRecord",
        module="write_record",
        settings=ARTIFACTS + RUNS + NODES,
        timeout_seconds=120,
        memory_mib=1024,
    ),
    Function(name="Notify", module="notify", settings=NOTIFICATIONS + RUNS + ARTIFACTS),
)
"""Functions of the Task states, in the order of the states."""

EVENT_HANDLERS = (
    Function(name="StartRun", module="start_run", settings=WORKFLOW + NOTIFICATIONS + RUNS),
    Function(name="ReportLostRequest", module="report_lost_request", settings=NOTIFICATIONS + RUNS),
    Function(
        name="CleanUp",
        module="clean_up",
        settings=CLUSTER + CAPACITY + NOTIFICATIONS + RUNS + CACHES + ARTIFACTS + METRICS,
        access=Access.CLEAN_UP,
        timeout_seconds=180,
    ),
    Function(
        name="SurveyFleet",
        module="survey_fleet",
        settings=CLUSTER + CAPACITY + NOTIFICATIONS + RUNS + REAPING + METRICS + CACHES + ARTIFACTS,
        access=Access.SURVEY,
        timeout_seconds=180,
    ),
)
"""Functions that EventBridge, its schedules, the queue of run requests and its dead-letter queue invoke."""

FUNCTIONS = TASKS + EVENT_HANDLERS
