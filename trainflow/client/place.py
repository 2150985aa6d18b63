"""Places where runs execute, and how they are found: an AWS deployment, the twin on this machine.

A package offers a place through an entry point of the group `trainflow.places`: a function that takes `PlaceOptions`
and returns a context manager of a `Place`. Nothing here imports such a package: the client is installed without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainflow.errors import TrainflowError
from trainflow.workflow.owner import Owner
from trainflow.workflow.run_status import RunStatus

if TYPE_CHECKING:  # a list of runs imports no model of a spec
    from trainflow.client.artifacts import Artifact
    from trainflow.client.code import PackedCode
    from trainflow.client.messages import Message
    from trainflow.kubernetes.api import KubernetesApi
    from trainflow.observed.run_state import RunState
    from trainflow.observed.step import Step
    from trainflow.spec.run_spec import RunSpec
    from trainflow.workflow.leftovers import SweepReport
    from trainflow.workflow.planned_run import PlannedRun
    from trainflow.workflow.run_record import RunError, RunRecord

GROUP = "trainflow.places"
"""Group of the entry points."""

LOCAL = "local"
"""Name of the twin."""

NOT_INSTALLED = {
    LOCAL: "The twin needs a checkout of the Trainflow repository, which this installation does not have: clone the "
    "repository, type `make run` in it, and then `.venv/bin/trainflow run SPEC --local`.",
}
"""Advice for places that another package adds."""


class PlaceUnavailable(TrainflowError):
    """A place cannot be used; the message says why and what to do."""

    input_at_fault = True


class RunNotFound(TrainflowError):
    """The place knows no run of this id."""

    what_to_do = "Check the run's id: it is the name of the run's execution and of its folder."
    input_at_fault = True


class RunExists(TrainflowError):
    """The place has a run of this id already, with another spec or ended."""

    what_to_do = "Change the spec or its name, or continue the run with `trainflow resume`."
    input_at_fault = True


class PlaceRefused(TrainflowError):
    """AWS did not let the caller do something, or could not be asked; the message names the action."""

    what_to_do = "Allow the action that the message names to the role or user whose credentials are used here."
    input_at_fault = True


class LogNotFound(TrainflowError):
    """The log does not exist (any more)."""

    input_at_fault = True


@dataclass(frozen=True, kw_only=True)
class LogRequest:
    """Which log, and how much of it."""

    rank: int = 0
    """Index of the node in the gang; its pod's log holds the output of all processes of the node."""
    pod: str | None = None
    """A pod by its name, instead."""
    since: datetime | None = None
    """Begin with lines of this time; None for the first line."""
    follow: bool = False
    """Go on with new lines: of a rank until the run has ended, of a pod by its name until the pod has."""
    notify: Callable[[str], None] = lambda _sentence: None
    """Called with what a reader of the lines has to know of them, such as that earlier ones are missing."""


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """A person's options for a place; each place reads those that concern it."""

    out: Path = Path("out")
    """Folder for the runs' folders: record, report, logs."""
    home: Path = Path(".trainflow")
    """The twin's S3 buckets and shared file system."""
    time_scale: float = 30.0
    """Waits of the state machines take `1 / time_scale` of their time; deployments ignore it."""
    kubeconfig: Path | None = None
    """A cluster to use instead of the place's own."""
    image_root: Path | None = None
    """Folder that stands for `workload.image` at a place that runs no images. Default: the spec's folder if the program
    is there, otherwise the folder that the place has for it."""
    faults: Path | None = None
    """File of the faults that runs are to meet, at a place that can inject them."""
    walls: bool | None = None
    """Whether pods run as their user, with their own root file system and mounts, at a place that can do without. None:
    where the machine allows it."""
    spec_folder: Path | None = None
    """Folder of the spec's file; None for a spec without one."""
    busy: Callable[[str], AbstractContextManager[object]] = nullcontext
    """Entered with a sentence while something takes long, such as `rich.console.Console.status`."""
    say: Callable[[str], None] = lambda _sentence: None
    """Told what a person should know of the place: a sentence at a time."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run as its place lists it."""

    run_id: str
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None = None
    restarts: int | None = None
    """Number of restarts; None where the list does not read it."""
    note: str = ""
    """The run's error, or that it has warnings; empty where the list does not read it."""
    owner: Owner | None = None
    """Who started it; None where the list does not read it."""
    team: str | None = None
    project: str | None = None


class FollowedRun(Protocol):
    """A run that is observed in the background until the context is left."""

    def __enter__(self) -> FollowedRun: ...

    def __exit__(self, *_: object) -> None:
        """Read everything a last time, and stop observing."""

    def snapshot(self) -> RunState:
        """Return the present knowledge about the run."""

    def is_finished(self) -> bool:
        """Whether the place says that the run is over."""

    def record(self, *, aborted: RunError | None = None) -> RunRecord:
        """Record of the run; to be called after the context is left.

        Args:
            aborted: Reason why the run was given up, if its execution may not have ended by itself.
        """

    def steps(self) -> list[Step]:
        """Logged steps of the training job in their order, repeated ones once."""


class Runs(Protocol):
    """Runs of a place. Methods raise `TrainflowError` with one sentence for the caller: `RunNotFound` for a run that is
    not there."""

    def runs(self) -> list[RunSummary]:
        """Runs that are known, the newest first."""

    def describe(self, run_id: str) -> RunSummary:
        """One run."""

    def follow(self, run_id: str, *, log_dir: Path) -> FollowedRun:
        """Observe a run from now on.

        Args:
            run_id: The run.
            log_dir: Folder for the pods' logs, one `<pod>.log` each.
        """

    def stop(self, run_id: str, *, reason: RunError) -> None:
        """Stop a run, and wait until it has released what it holds. Safe to repeat."""


class RunReader(Runs, Protocol):
    """Runs with everything that is known of them, for the commands."""

    name: str
    """Name of the place."""
    hint_words: tuple[str, ...]
    """Options of a command that name the place."""

    def details(self, run_id: str) -> RunState:
        """State, newest step, pods and error of a run, read once."""

    def record(self, run_id: str) -> RunRecord:
        """The record of an ended run; of one that goes on, what it would be now."""

    def records(self) -> list[tuple[str, RunRecord | None]]:
        """Id and record of every run whose record is kept or that Step Functions knows; None for a run that left no
        record that can be read. The records of runs that go on are made now, without the steps."""

    def final_record(self, run_id: str) -> RunRecord:
        """The record of a run that ends at this moment: waits until it is written, for as long as that takes."""

    def report(self, run_id: str) -> str:
        """The report as a page in HTML; of a run that goes on, what it would be now."""

    def steps(self, run_id: str) -> list[Step]:
        """The steps that the workflow keeps, at most a thousand evenly spaced ones."""

    def log(self, run_id: str, request: LogRequest) -> Iterator[str]:
        """Lines of a pod's log.

        Raises:
            LogNotFound: If the log does not exist (any more).
        """

    def execute(
        self, run_id: str, request: LogRequest, command: Sequence[str], write: Callable[[bool, bytes], None]
    ) -> int:
        """Run a command in the container of one of the run's pods; its exit code.

        Args:
            run_id: The run.
            request: Which pod.
            command: Program and its words; no shell is in between.
            write: Called with what the command prints, as it comes; first whether that is standard error.
        """

    def cluster(self, run_id: str) -> tuple[KubernetesApi, str]:
        """The cluster of a run that goes on, and the namespace of its pods."""

    def sweep(self, *, delete: bool) -> SweepReport:
        """Leftovers of ended runs in the clusters and tables of the place.

        Args:
            delete: Whether it is deleted; otherwise it is listed.
        """

    def artifacts(self, run_id: str) -> list[Artifact]:
        """Artifacts that the run has published so far."""

    def messages(self, run_id: str) -> list[Message]:
        """Messages that were sent about the run, the first one first.

        Raises:
            PlaceUnavailable: If the place keeps none.
        """

    def fetch(self, artifact: Artifact, path: Path) -> None:
        """Write an artifact to a file, in folders that are made."""


class Place(Runs, Protocol):
    """Somewhere runs execute."""

    def start(self, spec: RunSpec, *, code: PackedCode | None = None, run_id: str | None = None) -> str:
        """Start a run; its id.

        Args:
            spec: What to run.
            code: The packed `workload.code`, which is uploaded and replaced by its URL; None without code to pack.
            run_id: Another id than a new one; the same id and spec twice start one run.

        Raises:
            RunExists: If the id is that of another run, or of one that has ended.
            TrainflowError: If it cannot run there; nothing was started then.
        """

    def require_startable(self, spec: RunSpec) -> None:
        """Check what is known of a spec before anything is started.

        Raises:
            TrainflowError: If `start` would refuse it.
        """

    def plan(self, spec: RunSpec, *, code: PackedCode | None = None) -> PlannedRun:
        """The jobs that a run of the spec would submit, and what would keep it from starting. Creates nothing.

        Args:
            spec: What would run.
            code: The packed `workload.code`, which is not uploaded.
        """

    def resume(self, run_id: str, *, changes: Mapping[str, Any] | None = None, from_step: int | None = None) -> str:
        """Start a run that continues an ended one from its checkpoints; the new run's id.

        The new run has a folder of its own. Its spec names the run that it continues.

        Args:
            run_id: The run that was stopped or has failed; one that has succeeded needs changes.
            changes: Fields of its spec that differ, a JSON merge patch (RFC 7386).
            from_step: Highest step of the checkpoint. Default: the newest one, and after a run that ended with a loss
                that is not finite, the newest one before.

        Raises:
            TrainflowError: If the run goes on or made no checkpoint, or the changes make no spec; nothing was started
                then.
        """


def open_place(name: str, options: PlaceOptions) -> AbstractContextManager[Place]:
    """The place of this name.

    Raises:
        PlaceUnavailable: If no installed package offers it.
    """
    from importlib.metadata import entry_points  # brings the modules of `email`; a list of runs opens no place

    found = next(iter(entry_points(group=GROUP, name=name)), None)
    if found is None:
        installed = ", ".join(sorted({each.name for each in entry_points(group=GROUP)})) or "none"
        raise PlaceUnavailable(
            NOT_INSTALLED.get(name) or f"There is no place '{name}'; those that are installed: {installed}."
        )
    try:
        opener: Callable[[PlaceOptions], AbstractContextManager[Place]] = found.load()
    except ModuleNotFoundError as missing:
        raise PlaceUnavailable(
            f"The place '{name}' cannot be loaded: {missing}. Install what its package needs; in a checkout of the "
            "Trainflow repository `make run` does."
        ) from None
    return opener(options)


def new_run_id(spec: RunSpec, started_at: datetime) -> str:
    """Id of a run: the spec's name, and a suffix that differs between runs of the same spec."""
    import hashlib  # a list of runs needs none

    digest = hashlib.sha256(f"{spec.model_dump_json()}{started_at.isoformat()}".encode()).hexdigest()
    return f"{spec.name}-{digest[:12]}"
