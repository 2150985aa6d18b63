"""Every Lambda function: the stacks deploy this list and the twin runs it.

Timeouts cover a cold start and one retry of a slow call; the state machines' TimeoutSeconds are a little longer.
"""

from __future__ import annotations

from dataclasses import dataclass

CLUSTER = ("CLUSTER_NAME", "NAMESPACE")
ARTIFACTS = ("ARTIFACT_BUCKET",)
NOTIFICATIONS = ("TOPIC_ARN",)


@dataclass(frozen=True, kw_only=True)
class Function:
    """One handler module as a Lambda function."""

    name: str
    """As the placeholder in the state machines calls it."""
    module: str
    environment: tuple[str, ...]
    """Names of the variables that the handler reads."""
    timeout_seconds: int = 60
    memory_mib: int = 512

    @property
    def handler(self) -> str:
        """As Lambda writes it."""
        return f"lambdas.handlers.{self.module}.lambda_handler"


FUNCTIONS = (
    Function(name="ValidateRun", module="validate_run", environment=()),
    Function(name="EnsureCapacity", module="ensure_capacity", environment=CLUSTER),
    Function(name="StageData", module="stage_data", environment=CLUSTER + ARTIFACTS),
    Function(name="SubmitJob", module="submit_job", environment=CLUSTER + ARTIFACTS),
    Function(name="PollJob", module="poll_job", environment=CLUSTER),
    Function(name="LocateRank0", module="locate_rank0", environment=CLUSTER),
    Function(name="PublishMetrics", module="publish_metrics", environment=CLUSTER),
    Function(name="CheckCompilation", module="check_compilation", environment=CLUSTER),
    Function(name="PublishArtifacts", module="publish_artifacts", environment=CLUSTER + ARTIFACTS),
    Function(name="CollectDiagnostics", module="collect_diagnostics", environment=CLUSTER + ARTIFACTS),
    Function(name="TearDown", module="tear_down", environment=CLUSTER),
    Function(name="Notify", module="notify", environment=NOTIFICATIONS),
)
"""In the order in which a run meets them."""
