"""Every Lambda function: the stacks deploy this list and the twin runs it.

Timeouts cover a cold start and one retry of a slow call; the state machines' TimeoutSeconds are a little longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainflow.models.kubernetes_access import Access

SLURM = (
    "SLURM_API_URL",
    "SLURM_KEY_SECRET",
    "SLURM_USER",
    "SLURM_CLAIMS",
    "SLURM_SYSTEM_QUEUE",
    "SLURM_SHARED_FOLDER",
    "SLURM_ENVIRONMENT",
    "SLURM_PROGRAM_FOLDER",
    "SLURM_PROPERTIES",
)
"""Variables with Slurm's address and the folders of its nodes; empty in a deployment without one.

SLURM_CLAIMS is a JSON object of a token's claims besides its user and its expiry: AWS PCS requires the user ids.
SLURM_SYSTEM_QUEUE is the partition of small programs; empty where it is Slurm's default.
"""
CLUSTER = ("CLUSTER_NAME", "NAMESPACE", *SLURM)
"""Variables of functions that reach what runs the jobs, EKS or Slurm: the run says which of the two it is."""
METRICS = ("DEPLOYMENT",)
"""Variables of functions that publish metrics."""
ARTIFACTS = ("ARTIFACT_BUCKET",)
NOTIFICATIONS = ("TOPIC_ARN",)
RUNS = ("RUN_TABLE",)
CACHES = ("CACHE_TABLE",)
WORKFLOW = ("TRAINING_STATE_MACHINE_ARN",)
REAPING = ("IDLE_MINUTES",)
TOOLS = ("TOOLS_IMAGE",)
"""The image of staging and publishing."""
LINK = ("LINKED_FILE_SYSTEM", "LINKED_URL")
"""Data that the file system shows without a copy; empty in a deployment without such a link."""


@dataclass(frozen=True, kw_only=True)
class Function:
    """One handler module as a Lambda function."""

    name: str
    """Name of the function, as in the state machines' placeholders."""
    module: str
    environment: tuple[str, ...]
    """Names of the variables that the handler reads."""
    access: Access | None = None
    """Its Kubernetes group; None for functions that do not talk to the cluster."""
    timeout_seconds: int = 60
    memory_mib: int = 512

    @property
    def handler(self) -> str:
        """The handler in Lambda's notation, `module.function`."""
        return f"lambdas.handlers.{self.module}.lambda_handler"


TASKS = (
    Function(name="ValidateRun", module="validate_run", environment=RUNS + LINK + TOOLS),
    Function(name="Preflight", module="preflight", environment=CLUSTER + ARTIFACTS + CACHES, access=Access.EXAMINE),
    Function(name="AcquireCache", module="acquire_cache", environment=CACHES),
    Function(name="EnsureCapacity", module="ensure_capacity", environment=CLUSTER, access=Access.SCALE),
    Function(
        name="StageData", module="stage_data", environment=CLUSTER + ARTIFACTS + LINK + METRICS, access=Access.SUBMIT
    ),
    Function(name="SubmitJob", module="submit_job", environment=CLUSTER + ARTIFACTS, access=Access.SUBMIT),
    Function(name="PollJob", module="poll_job", environment=CLUSTER + ARTIFACTS, access=Access.WATCH),
    Function(name="LocateRank0", module="locate_rank0", environment=CLUSTER + ARTIFACTS, access=Access.WATCH),
    Function(
        name="PublishMetrics", module="publish_metrics", environment=CLUSTER + ARTIFACTS + METRICS, access=Access.WATCH
    ),
    Function(
        name="CheckCompilation",
        module="check_compilation",
        environment=CLUSTER + ARTIFACTS + CACHES,
        access=Access.WATCH,
    ),
    Function(
        name="PublishArtifacts", module="publish_artifacts", environment=CLUSTER + ARTIFACTS, access=Access.SUBMIT
    ),
    Function(
        name="CollectDiagnostics", module="collect_diagnostics", environment=CLUSTER + ARTIFACTS, access=Access.WATCH
    ),
    Function(name="TearDown", module="tear_down", environment=CLUSTER + ARTIFACTS + CACHES, access=Access.CLEAN_UP),
    Function(
        name="WriteRecord", module="write_record", environment=ARTIFACTS + RUNS, timeout_seconds=120, memory_mib=1024
    ),
    Function(name="Notify", module="notify", environment=NOTIFICATIONS + RUNS),
)
"""Functions of the Task states, in the order in which a run enters these."""

EVENT_HANDLERS = (
    Function(name="StartRun", module="start_run", environment=WORKFLOW + NOTIFICATIONS),
    Function(
        name="CleanUp",
        module="clean_up",
        environment=CLUSTER + NOTIFICATIONS + RUNS + CACHES + ARTIFACTS,
        access=Access.CLEAN_UP,
        timeout_seconds=180,
    ),
    Function(
        name="SurveyFleet",
        module="survey_fleet",
        environment=CLUSTER + NOTIFICATIONS + RUNS + REAPING + METRICS,
        access=Access.SURVEY,
    ),
)
"""Functions that EventBridge, its schedules and the queue of run requests invoke."""

FUNCTIONS = TASKS + EVENT_HANDLERS
