"""The run record (`run.json`): what happened, for people and for programs that compare runs."""

from __future__ import annotations

from datetime import datetime
from math import isfinite
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, PlainSerializer, WithJsonSchema

from trainflow.protocol.lost_files import LostFiles
from trainflow.spec.empty import empty_dict, empty_list
from trainflow.workflow.owner import Owner as Owner
from trainflow.workflow.restart import Restart as Restart
from trainflow.workflow.run_cost import Cost as Cost
from trainflow.workflow.run_cost import NodePrice as NodePrice
from trainflow.workflow.run_cost import StateCost as StateCost
from trainflow.workflow.run_error import RunError as RunError
from trainflow.workflow.run_status import RunStatus as RunStatus


def _written(value: float) -> float | str:
    return value if isfinite(value) else str(value)


AnyNumber = Annotated[
    float,
    PlainSerializer(_written, when_used="json"),
    WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}),
]
"""A number that may be NaN or infinite, which are words in JSON. Earlier versions wrote null."""


class _Entry(BaseModel):
    # The record's validator holds those of its entries: an entry's own is built when it is first used by itself.
    model_config = ConfigDict(extra="forbid", defer_build=True)


class StateVisit(_Entry):
    name: str
    entered_at: datetime
    exited_at: datetime | None = None
    """None for the last state of an execution that ended early."""
    attempts: int = 1
    """Tries of the state's task, the first one counted."""
    execution: str = ""
    """Name of the execution it belongs to: the run's own or a watch window's."""


class Execution(_Entry):
    arn: str
    state_machine: str
    events: int
    """History events; an execution may have 25,000."""


class Pod(_Entry):
    name: str
    node: str | None = None
    phase: str
    exit_code: int | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    message: str | None = None
    """Termination message or reason of a failed pod."""


class Job(_Entry):
    name: str
    attempts: int = 1
    phase: str
    pods: list[Pod] = Field(default_factory=empty_list)
    rank0: str | None = None
    """Name of the pod of rank 0; None for jobs of a single program."""


class SavedCheckpoint(_Entry):
    """A checkpoint of the training, as far as it is known."""

    step: int | None = None
    saved_at: datetime | None = None
    size_bytes: int | None = None
    url: str | None = None
    """URL of the published checkpoint; None if it stays on the shared file system."""


class Inputs(_Entry):
    """Inputs of the run, needed to repeat it."""

    image: str | None = None
    image_digest: str | None = None
    """Digest of the image that the cluster pulled."""
    code_url: str | None = None
    code_sha256: str | None = None
    git_commit: str | None = None
    """Commit of the code; with `-dirty` if files differed from it."""
    packages: dict[str, str] = Field(default_factory=empty_dict)
    """Versions of Python and of the packages that decide what a training computes, as the program's Python found them
    before the run requested its nodes."""
    tools_image: str | None = None
    """Image of Trainflow's own programs, named by their content."""
    dataset_url: str | None = None
    dataset_etag: str | None = None
    """ETag or digest of the data set's source; another version has another one."""
    dataset_sha256: str | None = None
    dataset_manifest: str | None = None
    """Digest of the manifest that every file was checked against."""
    dataset_verified: str | None = None
    """Kind of checksum that verified the data set while it was staged; None if it was not verifiable, or if an earlier
    version staged it."""
    dataset_bytes: int | None = None
    dataset_files: int | None = None


class NodesBusy(_Entry):
    """Utilization of the training's nodes, from Container Insights."""

    of: str
    """Measured resource: `NeuronCores`, `GPUs` or `CPUs`."""
    by_node: dict[str, float] = Field(default_factory=empty_dict)
    """Per cent, the mean of the training's last attempt."""


class Compilation(_Entry):
    graphs: int
    succeeded: int
    failed: int
    cache: str
    """`hit`, `miss` or `partial`: how many of the graphs were in the cache already."""


class Training(_Entry):
    steps: int
    """The step that the training has reached, counted from the beginning of the first of the runs that it continues."""
    length: int | None = None
    """Last step of the training, as the program's lines name it; None if they do not."""
    first_loss: AnyNumber | None = None
    last_loss: AnyNumber | None = None
    sequences_per_second: float | None = None
    """Median over the logged steps, all ranks together; of a long training over a thousand evenly spaced ones."""
    throughput_of: str = "sequences"
    """Unit of `sequences_per_second`: `sequences`, or `samples` if the program reports those."""
    speeds: dict[str, float] = Field(default_factory=empty_dict)
    """Median of each speed by the data that the program counts, such as `tokens`, or `tokens per process`."""
    last_metrics: dict[str, float] = Field(default_factory=empty_dict)
    """Newest value of each further figure that the program reported, under its own name."""
    non_finite_steps: int = 0
    """Logged steps whose loss was NaN or infinite."""
    first_non_finite_step: int | None = None
    non_finite_in_a_row: int = 0
    """Newest consecutive losses that were NaN or infinite; 0 if the newest one is finite."""
    non_finite_since: datetime | None = None
    """Time of the first of these."""
    last_finite_step: int | None = None
    """Newest step with a finite loss before these; None without one."""
    resumed_from: int | None = None
    """Step of the checkpoint that the newest job resumed from, or the second of its time for a name without a
    step; None for a start without one, and for Trainflow's own programs."""
    checkpoint: str | None = None
    """URL of the final checkpoint."""


class MetricsPublished(_Entry):
    datapoints: int
    first_step: int | None = None
    last_step: int | None = None
    gaps: int | None = None
    """Steps with a finite loss in rank 0's log that CloudWatch lacks; None where the two were not compared, as in the
    workflow."""
    duplicates: int | None = None
    """Data points in CloudWatch beyond one a step; None as above."""
    non_finite: int = 0
    """Steps with a loss that was NaN or infinite. CloudWatch does not accept them; they do not count as gaps."""
    log_rotations: int = 0
    """Polls that found rank 0's log replaced by a new file: the lines after the poll before were not read."""
    moved: int = 0
    """Data points whose time lay so far ahead that CloudWatch was given the time of the poll instead."""
    dropped: int = 0
    """Data points that CloudWatch does not take: too old, not finite (but the losses above), too large, or refused."""
    unparsable_lines: int = 0
    """Lines of rank 0's log that looked like lines of steps, and could not be read as such."""


class RunRecord(_Entry):
    """Everything that is known of a run."""

    model_config = ConfigDict(defer_build=False)

    run_id: str
    status: RunStatus
    error: RunError | None = None
    owner: Owner = Owner()
    """Who started it; unknown for an execution that was started without the client, and in records of earlier
    versions."""
    team: str | None = None
    """Team of its spec, or the deployment's default."""
    project: str | None = None
    spec: dict[str, Any]
    instance_type: str | None = None
    """Type of the gang's nodes, which may be one of `compute.fallback`; None for a run that requested none."""
    given_up: list[str] = Field(default_factory=empty_list)
    """Types without capacity, in the order of the attempts."""
    avoided_nodes: list[str] = Field(default_factory=empty_list)
    """Nodes that the last job did not use, because earlier ones had failed there."""
    started_at: datetime
    ended_at: datetime | None = None
    states: list[StateVisit] = Field(default_factory=empty_list)
    executions: list[Execution] = Field(default_factory=empty_list)
    jobs: dict[str, Job] = Field(default_factory=empty_dict)
    """Jobs by stage. The workflow's own record has only the gangs, with only their failed pods."""
    restarts: list[Restart] = Field(default_factory=empty_list)
    checkpoints: list[SavedCheckpoint] = Field(default_factory=empty_list)
    """Newest checkpoints in the order of writing: those that the program reports, or the published one."""
    inputs: Inputs | None = None
    cost: Cost | None = None
    """None for a run that held no nodes, and in records of earlier versions."""
    compile: Compilation | None = None
    training: Training | None = None
    metrics_published: MetricsPublished | None = None
    nodes_busy: NodesBusy | None = None
    """None where Container Insights has published nothing, and for Slurm."""
    overhead_seconds: float | None = None
    """Wall time of the execution without a running pod of the run; None if the pods were not watched."""
    lost_files: LostFiles | None = None
    """Files that the program left in its working folder, which are deleted with its pods; None without any."""
    warnings: list[str] = Field(default_factory=empty_list)
    """Deviations from the spec that did not end the run, one sentence each."""
    not_checked: list[str] = Field(default_factory=empty_list)
    """Facts that preflight could not check, one sentence each."""
    diagnostics: list[dict[str, Any]] = Field(default_factory=empty_list)
    """Reason and last lines of each unhealthy pod of a failed run, read before tear-down."""
