"""Runs for programs: a place, whose runs are objects with methods.

    from trainflow.client import connect

    run = connect("mine").start("spec.yaml") for line in run.logs(follow=True):
        print(line)
    print(run.status().loss, run.wait().error)

Every method may raise a `TrainflowError` with one sentence: the missing thing or permission, and the next step.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from trainflow.workflow.run_status import RunStatus

if TYPE_CHECKING:
    from trainflow.client.artifacts import Artifact
    from trainflow.client.place import RunReader, RunSummary
    from trainflow.observed.run_state import RunState
    from trainflow.observed.step import Step
    from trainflow.spec.run_spec import RunSpec
    from trainflow.workflow.run_record import RunRecord, StateVisit

    Spec = RunSpec | Mapping[str, Any] | Path | str
    """A run spec, the document of one, or the path of its file."""

POLL_SECONDS = 5.0
"""Time between two looks at a run that is waited for."""


class Starter(Protocol):
    """Starts runs at a place; both methods return the run's id."""

    def start(self, spec: Spec, overrides: Sequence[Path]) -> str:
        """Start a run, with what files of overrides say instead."""

    def resume(self, run_id: str, changes: Mapping[str, Any]) -> str:
        """Start a run that continues another."""


@dataclass(frozen=True)
class Client:
    """A place whose runs a program starts, reads and stops."""

    reader: RunReader
    starter: Starter

    @property
    def name(self) -> str:
        """Name of the deployment, or `local`."""
        return self.reader.name

    def runs(self) -> list[RunSummary]:
        """Runs that are known, the newest first: id, status and times."""
        return self.reader.runs()

    def run(self, run_id: str) -> Run:
        """An existing run.

        Raises:
            RunNotFound: If the run does not exist.
        """
        return Run(self.reader.describe(run_id).run_id, self)

    def start(self, spec: Spec, *, overrides: Sequence[Path] = ()) -> Run:
        """Start a run, which goes on without this program.

        Args:
            spec: A spec, the document of one, or the path of its file, in the folder of its code.
            overrides: Files of the same form that say what is different this time.

        Raises:
            InvalidRunSpec: If the described run could not start now; names the field.
        """
        return Run(self.starter.start(spec, overrides), self)


@dataclass(frozen=True)
class Run:
    """One run of a place. Nothing is kept: each call asks the place anew."""

    run_id: str
    client: Client

    def status(self) -> RunState:
        """State, newest step and loss, pods, cost so far, and the error of a run that has failed."""
        return self.client.reader.details(self.run_id)

    def states(self) -> list[StateVisit]:
        """Visits of the state machine's states in their order, with their times."""
        return self.record().states

    def metrics(self) -> list[Step]:
        """Logged steps, at most a thousand evenly spaced ones."""
        return self.client.reader.steps(self.run_id)

    def logs(
        self, *, rank: int = 0, pod: str | None = None, since: datetime | None = None, follow: bool = False
    ) -> Iterator[str]:
        """Lines of a log.

        Args:
            rank: Index of the node in the gang, whose pod prints for all processes of the node.
            pod: A pod by its name, instead.
            since: Begin with lines of this time.
            follow: Go on with new lines until the run has ended.
        """
        from trainflow.client.place import LogRequest

        return self.client.reader.log(self.run_id, LogRequest(rank=rank, pod=pod, since=since, follow=follow))

    def wait(self, *, poll_seconds: float = POLL_SECONDS) -> RunRecord:
        """Wait until the run has ended; its record, whose error is None if it has succeeded.

        Args:
            poll_seconds: Time between two looks.
        """
        while self.client.reader.describe(self.run_id).status is RunStatus.RUNNING:
            time.sleep(poll_seconds)
        return self.client.reader.final_record(self.run_id)

    def stop(self) -> None:
        """Stop the run and wait until it has released what it holds. Safe to repeat, and without effect on a run that
        has ended."""
        from trainflow.record.failure import explained

        if self.client.reader.describe(self.run_id).status is RunStatus.RUNNING:
            self.client.reader.stop(self.run_id, reason=explained("Aborted", "The run was stopped by a program."))

    def resume(self, *, changes: Mapping[str, Any] | None = None) -> Run:
        """Start a run that continues this one from its checkpoints.

        Args:
            changes: Fields of the spec that differ, a JSON merge patch (RFC 7386).
        """
        return Run(self.client.starter.resume(self.run_id, changes or {}), self.client)

    def record(self) -> RunRecord:
        """Everything that is known of the run; of one that goes on, what its record would be now."""
        return self.client.reader.record(self.run_id)

    def report(self) -> str:
        """The report as a page in HTML."""
        return self.client.reader.report(self.run_id)

    def artifacts(self) -> list[Artifact]:
        """Artifacts that the run has published so far."""
        return self.client.reader.artifacts(self.run_id)

    def pull(self, folder: Path) -> list[Path]:
        """Copy what the run has published into a folder; the copies, in the order of their names.

        Raises:
            ArtifactRefused: If a name leads out of the folder; those before it have been copied.
            OSError: If a copy cannot be written.
        """
        from trainflow.client.artifacts import path_below

        copies = []
        for artifact in self.artifacts():
            path = path_below(folder, artifact)
            self.client.reader.fetch(artifact, path)
            copies.append(path)
        return copies


def connect(name: str | None = None) -> Client:
    """The runs of a deployment, by boto3's credentials.

    Args:
        name: Name of the deployment, or what the configuration file calls it. None for the default of the environment
            or of the file, else the only one in the account's Region.

    Raises:
        PlaceUnavailable: If the deployment does not exist, or the choice between several is open.
        PlaceRefused: If AWS does not let the caller read its address.
    """
    from trainflow.client.place_names import read_names
    from trainflow.client.places import open_deployment

    runs = open_deployment(read_names().named(name))

    class Starts:
        def start(self, spec: Spec, overrides: Sequence[Path]) -> str:
            from trainflow.client.code import pack

            read, folder = _read(spec, overrides)
            return runs.start(read, code=pack(read.workload, beside=folder))

        def resume(self, run_id: str, changes: Mapping[str, Any]) -> str:
            return runs.resume(run_id, changes=changes)

    return Client(runs, Starts())


def this_machine(*, out: Path = Path("out"), home: Path = Path(".trainflow")) -> Client:
    """The runs of this machine, each in a twin of its own that outlives the program.

    Args:
        out: Folder of the runs' folders, as of `trainflow run --local`.
        home: The twin's buckets and shared file system.
    """
    from trainflow.client.local_runs import LocalOptions, LocalRuns

    class Starts:
        def start(self, spec: Spec, overrides: Sequence[Path]) -> str:
            from trainflow.client.background import start_in_background

            read, _folder = _read(spec, overrides)  # what is at fault is said before a process starts
            if isinstance(spec, str | Path):
                return start_in_background(Path(spec), out=out, home=home, overrides=overrides)
            with tempfile.NamedTemporaryFile("w", suffix=".json", dir=Path.cwd(), prefix=".spec-") as file:
                file.write(read.model_dump_json())
                file.flush()
                return start_in_background(Path(file.name), out=out, home=home)

        def resume(self, run_id: str, changes: Mapping[str, Any]) -> str:
            from trainflow.client.background import resume_in_background

            words = [f"{field}={json.dumps(value)}" for field, value in changes.items()]
            return resume_in_background(run_id, out=out, home=home, changes=words)

    return Client(LocalRuns(LocalOptions(out=out, home=home)), Starts())


def _read(spec: Spec, overrides: Sequence[Path]) -> tuple[RunSpec, Path]:
    """The spec, and the folder that its code's path is relative to."""
    from trainflow.client.spec_file import read_spec
    from trainflow.spec.run_spec import RunSpec

    if isinstance(spec, str | Path):
        return read_spec(Path(spec), overrides), Path(spec).parent
    document = spec.model_dump(mode="json") if isinstance(spec, RunSpec) else dict(spec)
    given = json.dumps(document).encode()
    return read_spec(Path("The spec"), overrides, given=given), Path.cwd()
