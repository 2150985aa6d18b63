"""The small facts that travel through the state machines: names, phases, cursors. Never logs or pod lists."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from trainflow.deployment.backends import BackendName
from trainflow.nodes.failed_nodes import FailedNodes
from trainflow.protocol.lost_files import LostFiles
from trainflow.protocol.reported_checkpoints import Reported
from trainflow.spec.run_spec import MAX_RUN_ID_LENGTH, RunSpec, with_present_names
from trainflow.workflow.failed_checkpoints import FailedCheckpoints
from trainflow.workflow.learned_progress import LearnedProgress
from trainflow.workflow.owner import Owner


class Fact(BaseModel):
    """Base of everything that is passed between states."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Stage(StrEnum):
    """The jobs of a run, in their order."""

    PREFLIGHT = "preflight"
    STAGE = "stage"
    PRECOMPILE = "precompile"
    TRAINING = "training"
    PUBLISH = "publish"


class JobPhase(StrEnum):
    """Phase of a whole job."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEEDED = "succeeded"


class Run(Fact):
    """One execution of the training state machine."""

    run_id: str
    execution_arn: str
    started_at: datetime
    spec: Annotated[RunSpec, BeforeValidator(with_present_names)]
    """Also read from executions that began under an earlier version, with the names that its fields had there."""
    owner: Owner = Owner()
    """Who started it; unknown for runs that began under an earlier version."""
    given_up: tuple[str, ...] = ()
    """Instance types without capacity, in the order of the attempts. The spec above names the type in use, and in
    `compute.fallback` the types that are left."""
    linked_folder: str | None = None
    """Folder of the data set in the pods if the file system is linked to its bucket, so that a copy is not needed."""
    tools_image: str | None = None
    """Image of the run's small jobs; it stays the same if a new version is deployed during the run. None on Slurm,
    whose nodes do not use images, and in runs that began under a version without it: their small jobs run in the
    workload's image."""

    failed_nodes: FailedNodes = FailedNodes()
    """Nodes that had failed jobs of the run; its next jobs avoid some of them."""
    failed_checkpoints: FailedCheckpoints = FailedCheckpoints()
    """Checkpoints that failed jobs of the run resumed from; its next jobs pass over some of them."""
    restarts_in_vain: int = 0
    """Restarts since the run's last progress."""
    nodes_are_sound: bool = False
    """Whether the newest job has trained on its nodes, and its failure casts doubt on none of them."""

    @property
    def tests_nodes(self) -> bool:
        """Whether the next gang's nodes are tested: only if a restart is left (otherwise a finding could only end the
        run), only while the test is not refuted, and not again where the gang has trained soundly."""
        is_useful = self.restarts_in_vain < self.spec.limits.max_restarts and not self.nodes_are_sound
        return self.spec.compute.check_nodes and is_useful and not self.failed_nodes.test_refuted_by

    def on_next_type(self) -> Run | None:
        """The run on the first type of `compute.fallback`; None if none is left."""
        spec = self.spec.on_next_type()
        if spec is None:
            return None
        given_up = (*self.given_up, self.spec.compute.instance_type)
        return self.model_copy(update={"spec": spec, "given_up": given_up})


class JobRef(Fact):
    """A submitted job: enough to find it again, whatever its size."""

    name: str
    stage: Stage
    attempt: int = Field(ge=1)
    num_nodes: int = Field(ge=1)
    backend: BackendName = "job"
    min_nodes: int | None = Field(default=None, ge=1)
    """Minimum number of nodes of an elastic job; None for jobs that need all of theirs."""

    @property
    def run_id(self) -> str:
        """The run of the job, from its name."""
        return self.name.removesuffix(job_name("", self.stage, self.attempt))

    @property
    def elastic(self) -> bool:
        """Whether ranks are assigned at run time, so that rank 0 has to announce its location."""
        return self.min_nodes is not None

    @property
    def gang_size(self) -> int:
        """Number of pods that the job needs to run."""
        return self.min_nodes or self.num_nodes


class LogPosition(Fact):
    """Position in a pod's log after the last line that was read: a second to read from again, and a number of lines."""

    pod: str
    since: datetime
    num_lines: int = Field(ge=1)
    """Lines at or after `since` that have been read."""
    first_line: int
    """Checksum of the first of these: if another line is the first one, it is another log."""


class Hang(Fact):
    """A library has said in rank 0's log that it gave up waiting for other processes, and nothing has followed."""

    error: str
    """Name of the error of the job if it does not continue."""
    line: str
    """The first line that said so, cut."""
    logged_at: datetime
    """Time of the newest such line in the log."""
    seen_at: datetime
    """Time when the log had first been read to its end with it, by the Lambda's clock."""


class HungAt(Fact):
    """Place where an attempt hung."""

    step: int | None
    """Newest step of the run at that time."""
    place: str = ""
    """File, line and function of the rank behind; empty if no stacks were read."""


class InPlaceRestart(Fact):
    """A restart of a training's program in its pods, without a new job."""

    model_config = ConfigDict(extra="ignore")

    attempt: int
    """Attempt of the job that goes on."""
    round: int
    """Number of the restart in this job, from 1."""
    at: datetime
    node: int
    """Number of the node in its gang, of the rank that ended."""
    reason: str
    """Signal that ended the rank."""
    last_step: int | None = None
    """Newest step before."""
    last_checkpoint: int | None = None
    """Number of the newest known checkpoint before."""

    @property
    def place(self) -> tuple[int, int]:
        """Order among the restarts of a run."""
        return self.attempt, self.round


class StepsAgain(Fact):
    """A program that was started again logged a step that it had passed before."""

    model_config = ConfigDict(extra="ignore")

    at: datetime
    """Time of the line."""
    newest_step: int
    """Newest step before the restart."""
    first_step: int
    """First step after it."""


class StepsMissing(Fact):
    """Lines of rank 0's log without a step, as they were when the owner had to know it."""

    after_step: int | None
    """The newest step; None if the log has shown none."""
    num_lines: int
    """Lines since then."""
    newest: tuple[str, ...] = ()
    """The last of them that contain a number, cut."""
    proposal: str | None = None
    """A pattern that reads such lines; None if no number rises in them."""


class LinesSinceStep(Fact):
    """Lines of rank 0's log since the newest step, or since its beginning."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    began_at: datetime | None = None
    """Time of the newest step's line, or of the job's first line; None before any line."""
    num_lines: int = 0
    newest: tuple[str, ...] = ()
    """The last of them that contain a number, cut."""
    longest_seconds: float = 0.0
    """Longest time so far until the next step, the first one included, by the times of the lines."""
    missing: StepsMissing | None = None
    """Set while lines go on and steps are overdue."""


class Ignored(Fact):
    """A checkpoint that a program was given, and its first step, which is lower."""

    checkpoint: int
    """Its number, as in `MetricsCursor.last_checkpoint`."""
    step: int


class MetricsCursor(Fact):
    """Position in rank 0's log up to the last line that was read and published."""

    # A run may outlast a deployment: fields of earlier versions are passed over. JSON has finite numbers alone.
    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)

    log: LogPosition | None = None
    """None before the first line."""
    first_step: int | None = None
    last_step: int | None = None
    datapoints: int = 0
    """Steps published so far."""
    non_finite_steps: int = 0
    """Number of steps with a loss that was NaN or infinite. CloudWatch does not accept such values."""
    first_non_finite_step: int | None = None
    non_finite_in_a_row: int = 0
    """Number of the newest consecutive losses that were NaN or infinite."""
    non_finite_since: datetime | None = None
    """Time of the first of these steps; None if the newest loss is finite."""
    last_finite_step: int | None = None
    """Newest step with a finite loss."""
    resumed_from: int | None = None
    """Number of the checkpoint that the newest job resumed from, as in `last_checkpoint`."""
    resumed_step: int | None = None
    """First step that was logged since; None before it."""
    ignored: Ignored | None = None
    """The first checkpoint that was given to a job whose steps began at a lower number; None without one."""
    first_loss: float | None = None
    last_loss: float | None = None
    last_checkpoint: int | None = None
    """Highest number of a checkpoint that the program has reported or that a job has resumed from. It is the
    checkpoint's step, or its time if its path does not show a step."""
    progressed_at: datetime | None = None
    """Time when a new step was last seen, by the Lambda's clock."""
    first_step_at: datetime | None = None
    """Time when the first step was seen, by the Lambda's clock."""
    format_name: str | None = None
    """Format of the program's progress, once a line has shown it; it stays the same for the run."""
    learned: LearnedProgress = Field(default_factory=LearnedProgress)
    """State of the general reader, which reads the lines of programs without a known format."""
    last_epoch: float | None = None
    """Epoch of the newest step."""
    metric_names: tuple[str, ...] = ()
    """The program's own figures that are published: the first ones that it reported."""
    figures_before_report: tuple[str, ...] | None = None
    """Further figures in the newest step's line while its report may still come; None once the step is complete."""
    since_step: LinesSinceStep = LinesSinceStep()
    printed_at: datetime | None = None
    """Time when a new line of any kind was last seen, by the Lambda's clock."""
    changed_at: datetime | None = None
    """Time when a line that is a sign of life was last seen, by the Lambda's clock: `lambdas.logic.signs_of_life`. None
    in positions of earlier versions."""
    known_lines: tuple[int, ...] = ()
    """Checksums of the newest different lines since the last step."""
    read_at: datetime | None = None
    """Time when the log was last read, with or without a new line, by the Lambda's clock."""
    log_rotations: int = 0
    """Number of times that the log was replaced since the previous poll, so that the lines in between were not read."""
    points_moved: int = 0
    """Data points whose time lay so far ahead that CloudWatch was given the time of the poll instead."""
    points_dropped: int = 0
    """Data points that CloudWatch does not take: too old, not finite, too large, or refused. Losses that are not finite
    are counted above, and not here."""
    lines_unparsable: int = 0
    """Lines that looked like lines of steps, and could not be read as such."""
    lost_files: LostFiles | None = None
    """Files that the program has left in its working folder, as the newest job that left some says."""
    reported_checkpoint: Reported | None = None
    """A checkpoint that the log reports, compared with the spec's pattern; None before the first."""
    hang: Hang | None = None
    """A hang that the log shows; None again after another step or line."""
    longest_pause_seconds: float = 0.0
    """Longest time between two polls that found steps of one pod."""
    hung_at: HungAt | None = None
    """Place where the attempt before hung; None if it ended for another reason."""
    steps_again: tuple[StepsAgain, ...] = ()
    """The newest places where a restarted program went back to a step."""
    awaits_step: bool = False
    """Whether a program was started again, and no step has been logged since."""

    in_place: tuple[InPlaceRestart, ...] = ()
    """The newest restarts in the pods, also of earlier jobs."""
    restarted_at_step: int = -1
    """Newest step at the newest restart of any kind; -1 before one."""
    restarted_at_checkpoint: int = -1
    """Newest checkpoint at the newest restart of any kind."""
    restarts_in_vain: int = 0
    """Restarts of any kind since the run's last progress, the newest one included."""

    def alive_as(self, later: MetricsCursor) -> MetricsCursor:
        """This position with the signs of life of a later one, whose steps could not be published."""
        signs = {
            "progressed_at": later.progressed_at,
            "printed_at": later.printed_at,
            "changed_at": later.changed_at,
            "known_lines": later.known_lines,
            "since_step": later.since_step,
            "read_at": later.read_at,
            "hang": later.hang,
        }
        return self.model_copy(update=signs)


class Spending(Fact):
    """Costs of the run's nodes, past and per hour, as far as their prices are known."""

    usd: float = 0.0
    """Estimated cost until `since`, at on-demand prices."""
    usd_per_hour: float = 0.0
    """Price of all nodes that the run holds since then."""
    since: datetime | None = None
    """None before the run held any nodes."""
    nodes_end_at: datetime | None = None
    """End of the capacity block, if the nodes are in one."""

    def by(self, now: datetime) -> float:
        """The cost until a moment, in USD."""
        held = (now - self.since) / timedelta(hours=1) if self.since else 0.0
        return self.usd + self.usd_per_hour * max(0.0, held)

    def at_rate(self, usd_per_hour: float, *, now: datetime, nodes_end_at: datetime | None = None) -> Spending:
        """This spending, from now on with other nodes."""
        return Spending(usd=self.by(now), usd_per_hour=usd_per_hour, since=now, nodes_end_at=nodes_end_at)


class LimitWarning(Fact):
    """The run has used most of one of its limits, and goes on."""

    limit: str | None
    """Field of the spec, such as `limits.max_usd`; None for the end of the nodes themselves."""
    ends_at: datetime
    """Time when the limit is reached at the present rate."""
    usd: float
    """Estimated cost so far; 0 where prices are not known."""
    last_step: int | None
    total_steps: int | None
    """Last step of the training; None if the spec does not contain it."""
    trained_at: datetime | None
    """Estimated end of the training at its present rate; None if unknown."""
    total_usd: float | None
    """Estimated cost of the run until then, under the same condition."""


class StagingProgress(Fact):
    """Progress of staging at the last poll."""

    done_bytes: int = 0
    files: int = 0
    moved_at: datetime | None = None
    """Time when these were first seen, by the Lambda's clock; None before the program runs, and while it waits for
    another run that stages the same data set."""
    importing: bool = False
    """Whether these fields describe FSx's import of the names, before the pod starts. It counts only names."""


def run_id_for(execution_name: str) -> str:
    """The run id of an execution: its name, made fit for Kubernetes.

    Names given by Trainflow are taken as they are. Those that the console makes up are UUIDs, which may begin with a
    digit, as no DNS label of a Service may: they get a prefix.

    Raises:
        ValueError: If no run id can be made of the name.
    """
    run_id = execution_name.lower()
    if run_id[:1].isdigit():
        run_id = f"run-{run_id}"
    if len(run_id) > MAX_RUN_ID_LENGTH or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", run_id):
        raise ValueError(
            f"the execution's name '{execution_name}' must be letters, digits and dashes, at most "
            f"{MAX_RUN_ID_LENGTH} of them"
        )
    return run_id


def job_name(run_id: str, stage: Stage, attempt: int) -> str:
    """The name of a job: the same submit twice makes one job."""
    return f"{run_id}-{stage}-{attempt}"
