"""The run table in DynamoDB: an item for each run, and one with the result of the fleet's last survey."""

from __future__ import annotations

from datetime import datetime, timedelta

from pydantic import Field

from trainflow.deployment.backends import BackendName
from trainflow.failures.error_table import error_list
from trainflow.workflow.owner import Owner
from trainflow.workflow.run import Fact, Run
from trainflow.workflow.run_record import RunStatus

KEY = "run_id"
EXPIRES_AT = "expires_at"
"""The table's time to live, in seconds since the epoch."""

KEPT_FOR = timedelta(days=365)
"""Longest time that an execution may run; Step Functions deletes an execution 90 days after its end."""

SURVEY_KEY = "#survey"
"""Key of the survey's item. No run has this id: run ids begin with a letter."""


NOTICE_KEPT_FOR = timedelta(days=14)
"""A function is repeated within minutes, an event of EventBridge within a day."""


def notice_key(execution_arn: str, about: str) -> str:
    """Key of the item that notes a message. No run has this id: run ids begin with a letter."""
    return f"#notice {execution_arn} {about}"


def expiry_of_notice(now: datetime) -> int:
    """Time to live of the note about a sent message, in seconds since the epoch."""
    return int((now + NOTICE_KEPT_FOR).timestamp())


class RunRow(Fact):
    """Item of the run table for a run."""

    run_id: str
    execution_arn: str
    spec_name: str
    owner: Owner = Owner()
    """Who started it; unknown in rows from versions without owners."""
    team: str | None = None
    project: str | None = None
    instance_type: str
    fallback: tuple[str, ...] = ()
    """Types that the run may use instead. Empty in rows from versions without this choice."""
    num_nodes: int
    backend: BackendName = "job"
    """Backend of its jobs. The default is that of rows from versions without this choice."""
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None = None
    keep_nodes: bool
    """Pods and nodes stay after a failure: `teardown.on_failure` is false."""
    keep_nodes_after_success: bool
    """The same of `teardown.on_success`."""
    error_name: str | None = None
    expires_at: int

    @property
    def needs_nodes(self) -> bool:
        """Whether the run's claim on nodes counts: while it runs, and afterwards if its spec keeps them.

        Stopping a run releases its nodes.
        """
        match self.status:
            case RunStatus.STARTING | RunStatus.RUNNING:
                return True
            case RunStatus.SUCCEEDED:
                return self.keep_nodes_after_success
            case RunStatus.FAILED if self.error_name in error_list("ended_by_limit"):
                return False  # to keep them would cost more than the limit allows
            case RunStatus.FAILED | RunStatus.TIMED_OUT:
                return self.keep_nodes
            case RunStatus.ABORTED:
                return False


def row_of(run: Run) -> RunRow:
    """The row of a run that begins."""
    return RunRow(
        run_id=run.run_id,
        execution_arn=run.execution_arn,
        spec_name=run.spec.name,
        owner=run.owner,
        team=run.spec.team,
        project=run.spec.project,
        instance_type=run.spec.compute.instance_type,
        fallback=tuple(run.spec.compute.fallback),
        num_nodes=run.spec.compute.num_nodes,
        backend=run.spec.compute.backend,
        status=RunStatus.RUNNING,
        started_at=run.started_at,
        keep_nodes=not run.spec.teardown.on_failure,
        keep_nodes_after_success=not run.spec.teardown.on_success,
        expires_at=int((run.started_at + KEPT_FOR).timestamp()),
    )


def schedule_key(schedule: str) -> str:
    """Key of the item of a schedule. No run has this id: run ids begin with a letter."""
    return f"#schedule {schedule}"


class ScheduleRow(Fact):
    """Item of the table for a schedule whose runs must not overlap."""

    schedule: str
    execution_arn: str
    """Its newest run."""
    waiting: str | None = None
    """Scheduled time of the request that waits for that run's end."""
    seen_at: datetime
    """Time when that request was last seen, or the newest run was about to be started."""
    version: int = 0
    """Grows with each change, so that of two functions that have read the same item one writes it."""


class Releasing(Fact):
    """Idle nodes of a type that a survey is about to release."""

    since: datetime
    """Time when they were first seen without a run."""
    num_nodes: int
    """Nodes of the type that were up."""


class LastSurvey(Fact):
    """State that a survey keeps for the next one."""

    surveyed_at: datetime
    idle_since: dict[str, datetime] = Field(default_factory=dict)
    """Time when the nodes of each instance type were first seen without a run."""
    releasing: dict[str, Releasing] = Field(default_factory=dict)
    """Planned releases by instance type. The survey may have crashed before it sent the messages."""
