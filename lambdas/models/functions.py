"""Every Lambda function: the stacks deploy this list and the twin runs it.

Timeouts cover a cold start and one retry of a slow call; the state machines' TimeoutSeconds are a little longer.
"""

from __future__ import annotations

from dataclasses import dataclass

from lambdas.models.kubernetes_access import Access

CLUSTER = ("CLUSTER_NAME", "NAMESPACE")
ARTIFACTS = ("ARTIFACT_BUCKET",)
NOTIFICATIONS = ("TOPIC_ARN",)
RUNS = ("RUN_TABLE",)
WORKFLOW = ("TRAINING_STATE_MACHINE_ARN",)
REAPING = ("IDLE_MINUTES",)


@dataclass(frozen=True, kw_only=True)
class Function:
    """One handler module as a Lambda function."""

    name: str
    """As the placeholder in the state machines calls it."""
    module: str
    environment: tuple[str, ...]
    """Names of the variables that the handler reads."""
    access: Access | None = None
    """Its Kubernetes group; None for functions that do not talk to the cluster."""
    timeout_seconds: int = 60
    memory_mib: int = 512

    @property
    def handler(self) -> str:
        """As Lambda writes it."""
        return f"lambdas.handlers.{self.module}.lambda_handler"


TASKS = (
    Function(name="ValidateRun", module="validate_run", environment=RUNS),
    Function(name="EnsureCapacity", module="ensure_capacity", environment=CLUSTER, access=Access.SCALE),
    Function(name="StageData", module="stage_data", environment=CLUSTER + ARTIFACTS, access=Access.SUBMIT),
    Function(name="SubmitJob", module="submit_job", environment=CLUSTER + ARTIFACTS, access=Access.SUBMIT),
    Function(name="PollJob", module="poll_job", environment=CLUSTER, access=Access.WATCH),
    Function(name="LocateRank0", module="locate_rank0", environment=CLUSTER + ARTIFACTS, access=Access.WATCH),
    Function(name="PublishMetrics", module="publish_metrics", environment=CLUSTER, access=Access.WATCH),
    Function(name="CheckCompilation", module="check_compilation", environment=CLUSTER, access=Access.WATCH),
    Function(
        name="PublishArtifacts", module="publish_artifacts", environment=CLUSTER + ARTIFACTS, access=Access.SUBMIT
    ),
    Function(
        name="CollectDiagnostics", module="collect_diagnostics", environment=CLUSTER + ARTIFACTS, access=Access.WATCH
    ),
    Function(name="TearDown", module="tear_down", environment=CLUSTER, access=Access.CLEAN_UP),
    Function(name="Notify", module="notify", environment=NOTIFICATIONS + RUNS),
)
"""Behind the Task states, in the order in which a run meets them."""

EVENT_HANDLERS = (
    Function(name="StartRun", module="start_run", environment=WORKFLOW + NOTIFICATIONS),
    Function(
        name="CleanUp",
        module="clean_up",
        environment=CLUSTER + NOTIFICATIONS + RUNS,
        access=Access.CLEAN_UP,
    ),
    Function(
        name="SurveyFleet",
        module="survey_fleet",
        environment=CLUSTER + NOTIFICATIONS + RUNS + REAPING,
        access=Access.SURVEY,
    ),
)
"""Behind EventBridge, its schedules and the queue of run requests."""

FUNCTIONS = TASKS + EVENT_HANDLERS
