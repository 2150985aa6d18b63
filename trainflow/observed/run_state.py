"""A run now, or as it ended: one type for status, screen and page, with its JSON form and its parser from a record."""

# Nothing here needs a pydantic model: the status of an ended run is printed without one.

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from datetime import datetime
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING, Any

from trainflow.observed.node_wait import NodeWait
from trainflow.observed.pod import Pod
from trainflow.observed.step import Step, announced_length
from trainflow.protocol.metric_aliases import SEQUENCES
from trainflow.spec.total_steps import total_steps
from trainflow.workflow.owner import UNKNOWN, Owner, read_owner
from trainflow.workflow.restart import Restart
from trainflow.workflow.run_cost import Cost
from trainflow.workflow.run_error import RunError
from trainflow.workflow.run_status import RunStatus

if TYPE_CHECKING:
    from trainflow.observed.visit import Visit
    from trainflow.protocol.checkpoint_line import CheckpointReport
    from trainflow.protocol.staging_line import StagingReport
    from trainflow.workflow.run_record import NodesBusy

VERSION = 1
"""Version of the JSON documents; fields are added without a new one."""

RECENT_STEPS = 50
"""Number of latest steps for speed and remaining time: enough to smooth, few enough to follow a change."""


def length_of_training(spec: Mapping[str, Any], steps: Sequence[Step]) -> int | None:
    """Last step of the training: of the spec's arguments, or as the program's lines name it."""
    return total_steps(spec, steps[0].step if steps else None) or announced_length(steps)


RECORD_FIELDS = {
    *("run_id", "status", "started_at", "ended_at", "spec", "error", "warnings", "cost"),
    *("owner", "team", "project"),
    *("jobs", "training", "metrics_published", "restarts", "avoided_nodes"),
}
"""Fields of a record that `recorded_state` reads."""

POD_FIELDS = ("name", "stage", "phase", "node", "attempt", "reason", "exit_code", "message")
"""Fields of a pod in the JSON document."""


@dataclass(frozen=True, kw_only=True)
class RunState:
    """A run as it is now, or as it ended. Nothing in it changes any more."""

    run_id: str
    status: RunStatus
    observed_at: datetime
    execution: str = ""
    """Name of the run's own execution, as opposed to its watch windows'."""
    arn: str = ""
    """ARN of the run's own execution."""
    owner: Owner = UNKNOWN
    """Who started it."""
    team: str | None = None
    """Team of its spec, or the deployment's default."""
    project: str | None = None
    spec: Mapping[str, Any] = field(default_factory=dict)
    """The run spec; empty while it is not known."""
    instance_type: str | None = None
    """Type of the nodes that were requested last; None before the request."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    states: tuple[Visit, ...] = ()
    """State visits of the run's execution and of its watch windows, in the order of entering."""
    node_wait: NodeWait | None = None
    """The newest answer to its request of nodes; None before the first, and for a run that has ended."""
    state: str | None = None
    """Current state of the run's own execution; None once the run has ended."""
    pods: tuple[Pod, ...] = ()
    """Every pod that was ever seen, deleted ones as they were last."""
    staging: StagingReport | None = None
    """Progress of the staging; None while nothing is being staged."""
    steps: tuple[Step, ...] = ()
    """Logged steps of the training job in their order, repeated ones once; of a record its newest step only."""
    total_steps: int | None = None
    """Last step of the whole training, if the spec's arguments or the program's lines contain it."""
    checkpoints: tuple[CheckpointReport, ...] = ()
    """The newest checkpoints that the program has reported, in the order of writing."""
    restarts: tuple[Restart, ...] = ()
    """Jobs that failed and were submitted again, and programs that were started again in their pods."""
    avoided_nodes: tuple[str, ...] = ()
    """Nodes that the run does not use because its jobs failed there."""
    test_is_refuted: bool = False
    """Whether the run goes on without the test of its nodes, because it fails wherever it runs."""
    cost: Cost | None = None
    """Estimate of what the run's nodes have cost so far; None while it has held none."""
    nodes_busy: NodesBusy | None = None
    """Utilization of the training's nodes, of a run that has ended."""
    error: RunError | None = None
    last_lines: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Last lines of each failed pod's log."""
    log_tail: tuple[str, Sequence[str]] | None = None
    """Name of the pod whose log shows the progress, and the newest lines of its log; None while no such pod runs."""
    warnings: tuple[str, ...] = ()
    trouble: str | None = None
    """Reason that keeps a part of this unknown, such as missing access to the cluster; the run itself may be well."""
    is_recorded: bool = False
    """Whether it is parsed from a record, which does not contain the attempt of a pod."""

    @property
    def step(self) -> int | None:
        """Newest step that the program reported."""
        return self.steps[-1].step if self.steps else None

    @property
    def loss(self) -> float | None:
        """Loss of that step; it may be NaN or infinite."""
        return self.steps[-1].loss if self.steps else None

    @property
    def metrics(self) -> Mapping[str, float]:
        """Newest value of each further figure that the program reports, under its own name."""
        return self.steps[-1].metrics if self.steps else {}

    @property
    def throughput(self) -> float | None:
        """Sequences or samples per second over all ranks, median of the latest steps; None where the program does not
        report it."""
        recent = [step.throughput for step in self.steps[-RECENT_STEPS:] if step.throughput is not None]
        return median(recent) if recent else None

    throughput_of = property(lambda self: self.steps[-1].throughput_of if self.steps else SEQUENCES)
    """Items that the throughput counts, such as `sequences`."""

    @property
    def cost_usd(self) -> float | None:
        """The cost so far; None where no price is known, and before it had any."""
        return self.cost.usd if self.cost else None

    @property
    def seconds(self) -> float:
        """Time since the start, in seconds, or the run's whole duration."""
        if self.started_at is None:
            return 0.0
        return max(0.0, ((self.ended_at or self.observed_at) - self.started_at).total_seconds())

    @property
    def checkpoint_age_seconds(self) -> float | None:
        """Time since the newest checkpoint, until the end of a run that has ended; None before the first."""
        if not self.checkpoints:
            return None
        return max(0.0, ((self.ended_at or self.observed_at) - self.checkpoints[-1].saved_at).total_seconds())

    @property
    def seconds_left(self) -> float | None:
        """Time until the last step at the speed of the latest ones; None while that is unknown.

        Log lines are stamped to the second, so a speed needs some seconds of them.
        """
        recent = self.steps[-RECENT_STEPS:]
        if self.total_steps is None or len(recent) < 2 or self.status is not RunStatus.RUNNING:
            return None
        elapsed = (recent[-1].logged_at - recent[0].logged_at).total_seconds()
        if elapsed < 2 or recent[-1].step == recent[0].step:
            return None
        seconds_per_step = elapsed / (recent[-1].step - recent[0].step)
        return max(0.0, (self.total_steps - recent[-1].step) * seconds_per_step)

    def as_json(self) -> dict[str, Any]:
        """The document that `trainflow status --json` prints. A number that JSON does not have is a word."""
        return {
            "version": VERSION,
            "run_id": self.run_id,
            "status": self.status.value,
            "owner": asdict(self.owner),
            "team": self.team,
            "project": self.project,
            "started_at": self.started_at.isoformat() if self.started_at else None,
            "ended_at": self.ended_at.isoformat() if self.ended_at else None,
            "state": self.state,
            "step": self.step,
            "total_steps": self.total_steps,
            "loss": _number(self.loss),
            "throughput": self.throughput,
            "throughput_of": self.throughput_of,
            "metrics": {name: _number(value) for name, value in self.metrics.items()},
            "seconds_left": self.seconds_left,
            "cost_usd": self.cost_usd,
            "restarts": [{**asdict(restart), "at": restart.at.isoformat()} for restart in self.restarts],
            "avoided_nodes": list(self.avoided_nodes),
            "pods": [self._pod_as_json(pod) for pod in self.pods],
            "error": asdict(self.error) if self.error else None,
            "warnings": list(self.warnings),
            "trouble": self.trouble,
        }

    def _pod_as_json(self, pod: Pod) -> dict[str, Any]:
        document = {name: getattr(pod, name) for name in POD_FIELDS}
        return {**document, "attempt": None} if self.is_recorded else document


def recorded_state(record: Mapping[str, Any]) -> RunState:
    """Parse a record's JSON document, whose other fields may be those of another version.

    Raises:
        KeyError, TypeError, ValueError, AttributeError: If it is not a record.
    """
    started_at, ended_at = datetime.fromisoformat(record["started_at"]), _time(record.get("ended_at"))
    error, cost = record.get("error"), record.get("cost")
    return RunState(
        run_id=record["run_id"],
        status=RunStatus(record["status"]),
        observed_at=ended_at or started_at,
        owner=read_owner(record.get("owner")),
        team=record.get("team"),
        project=record.get("project"),
        spec=record["spec"],
        started_at=started_at,
        ended_at=ended_at,
        pods=tuple(_recorded_pods(record.get("jobs") or {})),
        steps=tuple(_newest_step(record, at=ended_at or started_at)),
        total_steps=total_steps(record["spec"], None) or (record.get("training") or {}).get("length"),
        cost=Cost(usd=cost.get("usd"), node_hours=cost.get("node_hours", 0.0), region=cost.get("region", ""))
        if cost
        else None,
        error=RunError(**error) if error is not None else None,
        restarts=tuple(map(_recorded_restart, record.get("restarts") or ())),
        avoided_nodes=tuple(record.get("avoided_nodes") or ()),
        warnings=tuple(record.get("warnings") or ()),
        is_recorded=True,
    )


def _recorded_pods(jobs: Mapping[str, Any]) -> Iterator[Pod]:
    for stage, job in jobs.items():
        for pod in job.get("pods") or ():
            yield Pod(
                name=pod["name"],
                uid=pod["name"],
                stage=stage,
                attempt=job.get("attempts", 1),
                index=0 if pod["name"] == job.get("rank0") else 1,
                job_name=job.get("name"),
                node=pod.get("node"),
                phase=pod["phase"],
                exit_code=pod.get("exit_code"),
                message=pod.get("message"),
                started_at=_time(pod.get("started_at")),
                finished_at=_time(pod.get("finished_at")),
            )


def _recorded_restart(document: Mapping[str, Any]) -> Restart:
    known = {each.name: document[each.name] for each in fields(Restart) if each.name in document}
    return Restart(**{**known, "at": datetime.fromisoformat(document["at"])})


def _newest_step(record: Mapping[str, Any], *, at: datetime) -> Iterator[Step]:
    """The newest step as the record sums it up; its throughput is the median of all steps."""
    training, last_step = record.get("training") or {}, (record.get("metrics_published") or {}).get("last_step")
    step = last_step if last_step is not None else training.get("steps") or None
    if step is not None:
        yield Step(
            logged_at=at,
            epoch=None,
            step=step,
            loss=float(loss) if (loss := training.get("last_loss")) is not None else None,  # NaN is a word in JSON
            learning_rate=None,
            throughput=training.get("sequences_per_second"),
            metrics=training.get("last_metrics") or {},
            throughput_of=training.get("throughput_of") or SEQUENCES,
        )


def _number(value: float | None) -> float | str | None:
    return value if value is None or isfinite(value) else str(value)


def _time(text: str | None) -> datetime | None:
    return datetime.fromisoformat(text) if text is not None else None
