"""Places where runs execute, and how they are found: an AWS deployment, the twin on this machine.

A package offers a place through an entry point of the group `trainflow.places`: a function that takes `PlaceOptions`
and returns a context manager of a `Place`. Nothing here imports such a package: the client is installed without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from trainflow.client.observe.snapshot import RunSnapshot
from trainflow.errors import TrainflowError
from trainflow.models.run_record import RunError, RunRecord, RunStatus
from trainflow.models.run_spec import RunSpec
from trainflow.protocol.metrics_line import StepMetrics

GROUP = "trainflow.places"
"""Group of the entry points."""

LOCAL = "local"
"""Name of the twin."""

NOT_INSTALLED = {
    LOCAL: "The twin needs a checkout of the Trainflow repository, which this installation does not have: clone the "
    "repository, type `make run` in it, and then `.venv/bin/trainflow run SPEC --local`.",
}
"""What to do about places that another package brings."""


class PlaceUnavailable(TrainflowError):
    """A place cannot be used; the message says why and what to do."""

    input_at_fault = True


class RunNotFound(TrainflowError):
    """The place knows no run of this id."""

    what_to_do = "Check the run's id: it is the name of the run's execution and of its folder."
    input_at_fault = True


@dataclass(frozen=True, kw_only=True)
class PlaceOptions:
    """What a person may say about a place; each place reads what concerns it."""

    out: Path = Path("out")
    """Folder for the runs' folders: record, report, logs."""
    home: Path = Path(".trainflow")
    """The twin's S3 buckets and shared file system."""
    time_scale: float = 30.0
    """Waits of the state machines take `1 / time_scale` of their time; a deployment has no such scale."""
    kubeconfig: Path | None = None
    """A cluster to use instead of the place's own."""
    busy: Callable[[str], AbstractContextManager[object]] = nullcontext
    """Entered with a sentence while something takes long, such as `rich.console.Console.status`."""


@dataclass(frozen=True, kw_only=True)
class RunSummary:
    """A run as its place lists it."""

    run_id: str
    status: RunStatus
    started_at: datetime
    ended_at: datetime | None = None


class FollowedRun(Protocol):
    """A run that is observed in the background until the context is left."""

    def __enter__(self) -> FollowedRun: ...

    def __exit__(self, *_: object) -> None:
        """Read everything a last time, and stop observing."""

    def snapshot(self) -> RunSnapshot:
        """What is known now."""

    def is_finished(self) -> bool:
        """Whether the place says that the run is over."""

    def record(self, *, aborted: RunError | None = None) -> RunRecord:
        """What happened; to be asked for after the context is left.

        Args:
            aborted: Why the run was given up, if its execution may not have ended by itself.
        """

    def steps(self) -> list[StepMetrics]:
        """Logged steps of the training job in their order, repeated ones once."""


class Place(Protocol):
    """Somewhere runs execute. Its methods raise `TrainflowError` with one sentence for the caller."""

    def start(self, spec: RunSpec) -> str:
        """Start a run; its id.

        Raises:
            TrainflowError: If it cannot run there; nothing was started then.
        """

    def runs(self) -> list[RunSummary]:
        """Runs that the place knows, the newest first."""

    def describe(self, run_id: str) -> RunSummary:
        """One run.

        Raises:
            RunNotFound: If there is none of this id.
        """

    def follow(self, run_id: str, *, log_dir: Path) -> FollowedRun:
        """Observe a run from now on.

        Args:
            run_id: The run.
            log_dir: Folder for the pods' logs, one `<pod>.log` each.
        """

    def stop(self, run_id: str, *, reason: RunError) -> None:
        """Stop a run, and wait until it has released what it holds. Safe to repeat."""


def open_place(name: str, options: PlaceOptions) -> AbstractContextManager[Place]:
    """The place of this name.

    Raises:
        PlaceUnavailable: If no installed package offers it.
    """
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
    """Id of a run: the spec's name, and what tells this run from others of the same spec."""
    digest = hashlib.sha256(f"{spec.model_dump_json()}{started_at.isoformat()}".encode()).hexdigest()
    return f"{spec.name}-{digest[:12]}"
