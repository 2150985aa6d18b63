"""Runs of this machine, from any process: those that a twin runs now, and those that have left their folders."""

# A list imports no model and no AWS: it is the first thing that a person waits for (benchmarks/cli.py).

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainflow.client.hints import list_hint, local_words
from trainflow.client.place import LOCAL, FollowedRun, LogNotFound, PlaceUnavailable, RunNotFound, RunSummary
from trainflow.client.twin_address import TwinAddress, is_starting, read_address, read_start_time
from trainflow.client.whole_files import replaced
from trainflow.errors import TrainflowError
from trainflow.record.run_commands import pasted
from trainflow.workflow.owner import read_owner
from trainflow.workflow.run_status import RunStatus

if TYPE_CHECKING:
    from trainflow.client.artifacts import Artifact
    from trainflow.client.local_start import LocalStart
    from trainflow.client.messages import Message
    from trainflow.client.observe.utilization import Utilization
    from trainflow.client.place import LogRequest
    from trainflow.client.runs import DeployedRuns
    from trainflow.kubernetes.api import KubernetesApi
    from trainflow.observed.run_state import RunState
    from trainflow.observed.step import Step
    from trainflow.record.steps import KeptSteps
    from trainflow.spec.run_spec import RunSpec
    from trainflow.workflow.leftovers import SweepReport
    from trainflow.workflow.run_record import RunError, RunRecord

RECORD, REPORT, STEPS, LOGS, LATEST = "run.json", "report.html", "steps.json", "logs", "latest"

END_SECONDS = 90.0
"""Longest wait for a twin to start, and for the end of a stopped run: its clean-up, its record and its twin's end."""

HAS_ENDED = "The run has ended; `trainflow status RUN` and `trainflow report RUN` show how."

NO_RECORD = "The twin ended before the run did, and left no record."


@dataclass(frozen=True, kw_only=True)
class LocalOptions:
    """Folders of `trainflow run --local`."""

    out: Path = Path("out")
    home: Path = Path(".trainflow")


class LocalRuns:
    """A `RunReader` of this machine."""

    def __init__(self, options: LocalOptions) -> None:
        """Reads nothing yet."""
        self.name = LOCAL
        self._out, self._home = options.out, options.home
        self.hint_words: tuple[str, ...] = local_words(out=options.out, home=options.home)

    def runs(self) -> list[RunSummary]:
        """See `RunReader`."""
        found = [summary for folder in self._folders() if (summary := _summary(folder)) is not None]
        return sorted(found, key=lambda run: run.started_at, reverse=True)

    def describe(self, run_id: str) -> RunSummary:
        """See `RunReader`."""
        summary = _summary(self._folder(run_id))
        if summary is None:
            raise self._unknown(run_id)
        return summary

    def details(self, run_id: str) -> RunState:
        """See `RunReader`."""
        from trainflow.observed.run_state import RunState
        from trainflow.workflow.run_error import RunError

        folder = self._folder(run_id)
        if is_starting(folder):
            begun = self.describe(run_id)
            return RunState(
                run_id=begun.run_id, status=begun.status, observed_at=datetime.now(UTC), started_at=begun.started_at
            )
        if (found := _recorded_details(folder)) is not None:
            return _as_started(found, folder)
        if (live := self._live(folder)) is not None:
            return _as_started(live.details(folder.name), folder)
        summary, kept = self.describe(run_id), self._kept_steps(folder.name)
        logs = f"its logs are in {folder / LOGS}."
        has_trained = bool(kept.checkpoints) or kept.progress.last_step is not None
        continue_it = "Continue it from its newest checkpoint, if it saved one: trainflow resume RUN; "
        error = RunError(
            name="Aborted",
            message=NO_RECORD,
            what_to_do=f"{continue_it if has_trained else 'Start the run again; '}{logs}",
        )
        return RunState(
            run_id=summary.run_id,
            status=summary.status,
            observed_at=datetime.now(UTC),
            started_at=summary.started_at,
            steps=kept.steps,
            checkpoints=kept.checkpoints,
            error=error,
        )

    def record(self, run_id: str) -> RunRecord:
        """See `RunReader`."""
        folder = self._folder(run_id)
        if (record := _record(folder)) is not None:
            return record
        if (live := self._live(folder)) is not None:
            return live.record(folder.name)
        raise RunNotFound(f"{folder} has no {RECORD}: {NO_RECORD}")

    def records(self) -> list[tuple[str, RunRecord | None]]:
        """See `RunReader`. A run that is starting is left out: it has held no nodes."""
        found: list[tuple[str, RunRecord | None]] = []
        for run in self.runs():
            if run.status is not RunStatus.STARTING:
                folder = self._out / run.run_id
                live = self._live(folder) if (record := _record(folder)) is None else None
                found.append((run.run_id, record if live is None else live.record(run.run_id)))
        return found

    def started(self, run_id: str) -> LocalStart | None:
        """Start arguments of a run; None for a run of an earlier version, which did not keep them."""
        from trainflow.client.local_start import read_start

        return read_start(self._folder(run_id))

    def spec_continuing(
        self, run_id: str, changes: Mapping[str, Any] | None = None, *, from_step: int | None = None
    ) -> RunSpec:
        """The spec of a run that continues this one.

        Args:
            run_id: The run.
            changes: Fields of its spec that differ.
            from_step: See `Place.resume`.

        Raises:
            TrainflowError: See `trainflow.client.continuing`.
        """
        from trainflow.client.continuing import continued_spec, spec_continuing
        from trainflow.client.resume_bounds import resume_bounds

        found, start = self.describe(run_id), self.started(run_id)
        if not found.status.is_over or _record(self._folder(run_id)) is not None or start is None:
            steps = self.steps(run_id) if from_step is not None else ()
            return spec_continuing(self.record(run_id), changes, steps=steps, from_step=from_step)
        kept = self._kept_steps(found.run_id)
        bounds = resume_bounds(found.run_id, start.spec, kept.progress, steps=kept.steps, from_step=from_step)
        return continued_spec(found.run_id, start.spec, status=found.status, changes=changes, bounds=bounds)

    def _kept_steps(self, run_id: str) -> KeptSteps:
        """The steps that the workflow stored before its twin was killed."""
        from trainflow.record.steps import KeptSteps, kept_steps_from_json

        file = self._published(run_id) / STEPS
        return kept_steps_from_json(file.read_bytes()) if file.is_file() else KeptSteps()

    def cluster(self, run_id: str) -> tuple[KubernetesApi, str]:
        """See `RunReader`."""
        folder = self._folder(run_id)
        if (live := self._live(folder)) is None:
            raise RunNotFound(f"The run {folder.name} has ended, and its cluster with it.")
        return live.cluster(folder.name)

    def sweep(self, *, delete: bool) -> SweepReport:
        """See `RunReader`. Asks every twin that lives; what runs of another one held has ended with it."""
        from trainflow.workflow.leftovers import SweepReport

        twins = {found.endpoint: found for folder in self._folders() if (found := read_address(folder)) is not None}
        reports = [_connected_deployment(twin, self.hint_words).sweep(delete=delete) for twin in twins.values()]
        return SweepReport(
            deleted=delete,
            runs=tuple(run for report in reports for run in report.runs),
            trouble=tuple(sentence for report in reports for sentence in report.trouble),
        )

    def report(self, run_id: str) -> str:
        """See `RunReader`."""
        folder = self._folder(run_id)
        if (folder / REPORT).is_file():
            return (folder / REPORT).read_text(encoding="utf-8")
        if (live := self._live(folder)) is not None:
            return live.report(folder.name)
        raise RunNotFound(f"{folder} has no {REPORT}: {NO_RECORD}")

    def steps(self, run_id: str) -> list[Step]:
        """See `RunReader`. Of an ended run, every step that its program has logged."""
        from trainflow.record.steps import kept_steps_from_json

        folder = self._folder(run_id)
        if (live := self._live(folder)) is not None:
            return live.steps(folder.name)
        path = folder / STEPS
        return list(kept_steps_from_json(path.read_bytes()).steps) if path.is_file() else []

    def log(self, run_id: str, request: LogRequest) -> Iterator[str]:
        """See `RunReader`. Of an ended run, the file that its twin has left."""
        folder = self._folder(run_id)
        if (live := self._live(folder)) is not None and _document(folder / RECORD) is None:
            try:
                lines = live.log(folder.name, request)
                return self._until_recorded(folder, live, lines) if request.follow else lines
            except LogNotFound:
                if request.pod not in self._logs(folder):  # a pod that is gone, whose log was written here
                    raise
        return _lines(self._log_file(folder, request), request)

    def _until_recorded(self, folder: Path, live: DeployedRuns, lines: Iterator[str]) -> Iterator[str]:
        """Lines of a log that is followed. Where the run ends with them, its record is awaited: the twin ends a moment
        later, and cannot be asked any more how the run ended."""
        try:
            yield from lines
            if live.describe(folder.name).status is RunStatus.RUNNING:
                return
        except TrainflowError:
            if read_address(folder) is not None:
                raise
        self._wait_for_record(folder)

    def final_record(self, run_id: str) -> RunRecord:
        """See `RunReader`. Its twin writes it after the last of the run's events."""
        self._wait_for_record(self._folder(run_id))
        return self.record(run_id)

    def _wait_for_record(self, folder: Path) -> None:
        """Wait for the report, which is written last, or for the end of the twin."""
        deadline = time.monotonic() + END_SECONDS
        while not (folder / REPORT).is_file() and read_address(folder) is not None and time.monotonic() < deadline:
            time.sleep(0.1)

    def execute(
        self, run_id: str, request: LogRequest, command: Sequence[str], write: Callable[[bool, bytes], None]
    ) -> int:
        """See `DeployedRuns`."""
        folder = self._folder(run_id)
        if (live := self._live(folder)) is None:
            raise RunNotFound(f"The run {folder.name} has ended, and its pods with it.")
        return live.execute(folder.name, request, command, write)

    def artifacts(self, run_id: str) -> list[Artifact]:
        """See `RunReader`."""
        from trainflow.client.artifacts import Artifact

        folder = self._folder(run_id)
        if (live := self._live(folder)) is not None:
            return live.artifacts(folder.name)
        if not self._home.is_dir():
            raise PlaceUnavailable(
                f"--home {self._home}: there is no such folder; name the one with which the run was started."
            )
        kept = self._published(folder.name)
        return [
            Artifact(
                name=path.relative_to(kept).as_posix(),
                key=str(path.absolute()),
                size=path.stat().st_size,
                modified_at=datetime.fromtimestamp(path.stat().st_mtime, UTC),
            )
            for path in sorted(kept.rglob("*"))
            if path.is_file() and not path.is_symlink()
        ]

    def messages(self, run_id: str) -> list[Message]:
        """See `RunReader`."""
        from trainflow.client.messages import kept_messages

        return kept_messages(self._folder(run_id))

    def fetch(self, artifact: Artifact, path: Path) -> None:
        """See `RunReader`. What was listed while the twin lived is in its S3, or in what that has left."""
        from contextlib import suppress

        path.parent.mkdir(parents=True, exist_ok=True)
        source = Path(artifact.key)
        if not source.is_absolute():
            run_id = source.parts[1]
            if (live := self._live(self._folder(run_id))) is not None:
                with suppress(TrainflowError):  # the twin may be ending
                    live.fetch(artifact, path)
                    return
            source = self._published(run_id) / artifact.name
        try:
            with replaced(path) as unfinished:
                shutil.copyfile(source, unfinished)
        except FileNotFoundError:
            raise PlaceUnavailable(f"{artifact.name} is not there any more; list the artifacts again.") from None

    def follow(self, run_id: str, *, log_dir: Path) -> FollowedRun:
        """See `RunReader`.

        Raises:
            RunNotFound: If the run has ended, so that it cannot be followed.
        """
        folder = self._folder(run_id)
        live = self._live(folder)
        if live is None:
            raise RunNotFound(pasted(HAS_ENDED, folder.name, self.hint_words))
        return live.follow(folder.name, log_dir=log_dir)

    def node_utilization(self, run_id: str, nodes: Collection[str]) -> Utilization | None:
        """See `DeployedRuns`; None of a run that has ended."""
        folder = self._folder(run_id)
        live = self._live(folder)
        return live.node_utilization(folder.name, nodes) if live is not None else None

    def stop(self, run_id: str, *, reason: RunError) -> None:
        """See `RunReader`. Waits until the run's record is there and its twin has ended."""
        folder = self._folder(run_id)
        live = self._live(folder)
        if live is None:
            return
        live.stop(folder.name, reason=reason)
        deadline = time.monotonic() + END_SECONDS
        while read_address(folder) is not None:
            if time.monotonic() > deadline:
                raise PlaceUnavailable(f"The run {folder.name} is stopped, but its twin has not ended; see {folder}.")
            time.sleep(0.1)

    def _folders(self) -> list[Path]:
        try:
            return [path for path in self._out.iterdir() if path.is_dir() and not path.is_symlink()]
        except OSError:
            return []

    def _folder(self, run_id: str) -> Path:
        """The run's folder. `latest` is the newest run; the beginning of an id is enough where it is one run's."""
        if run_id == LATEST and (newest := self.runs()):
            return self._out / newest[0].run_id
        names = [folder.name for folder in self._folders()] if run_id else []
        found = [name for name in names if name == run_id] or [name for name in names if name.startswith(run_id)]
        if len(found) > 1:
            raise RunNotFound(f"'{run_id}' begins the ids of {len(found)} runs: {', '.join(sorted(found)[:5])}.")
        if not found:
            raise self._unknown(run_id)
        return self._out / found[0]

    def _unknown(self, run_id: str) -> RunNotFound:
        return RunNotFound(
            f"There is no run '{run_id}' in {self._out}/; `{list_hint(self.hint_words)}` names those that there are, "
            "--out another folder."
        )

    def _live(self, folder: Path) -> DeployedRuns | None:
        """The run's twin as the deployment that it is; None if it does not live. One that is starting is awaited."""
        deadline = time.monotonic() + END_SECONDS
        while is_starting(folder):
            if time.monotonic() > deadline:
                raise PlaceUnavailable(f"The run {folder.name} is still starting; see {folder / LOGS}.")
            time.sleep(0.1)
        address = read_address(folder)
        return _connected_deployment(address, self.hint_words) if address is not None else None

    def _published(self, run_id: str) -> Path:
        """Folder of what the run has published, as the twin's S3 leaves it."""
        return next(iter(sorted(self._home.glob(f"s3/*/runs/{run_id}"))), self._home / "s3" / run_id)

    def _logs(self, folder: Path) -> dict[str, Path]:
        return {path.stem: path for path in sorted((folder / LOGS).glob("*.log"))}

    def _log_file(self, folder: Path, request: LogRequest) -> Path:
        logs = self._logs(folder)
        wanted = request.pod or _pod_of_rank(folder, request.rank)
        if wanted not in logs:
            asked = f"pod '{request.pod}'" if request.pod else f"training pod of rank {request.rank}"
            raise LogNotFound(
                f"{folder / LOGS} has no log of a {asked}; --pod names one of: {', '.join(logs) or 'none'}."
            )
        return logs[wanted]


def _pod_of_rank(folder: Path, rank: int) -> str | None:
    """Name of a pod of the training's last attempt; None if it is not known."""
    record = _document(folder / RECORD)
    if record is not None:
        return _recorded_pod(record, rank)
    from trainflow.client.log_index import pod_of_rank

    return pod_of_rank(folder / LOGS, rank)


def _recorded_pod(record: Mapping[str, Any], rank: int) -> str:
    """The same from a record, which has the pods by attempt and index."""
    try:
        job = record["jobs"]["training"]
        names = [str(pod["name"]) for pod in job["pods"]]
        first = names.index(job["rank0"])
    except (KeyError, TypeError, ValueError):
        return ""
    return "".join(names[first + rank : first + rank + 1])


def _lines(path: Path, request: LogRequest) -> Iterator[str]:
    """Lines of a log that an ended run has left.

    Raises:
        LogNotFound: If their times are asked for and not known.
    """
    from trainflow.client.log_times import offset_since

    begin = 0 if request.since is None else offset_since(path, request.since)
    if begin is None:
        raise LogNotFound(f"The times of {path.name} are not known: an earlier version wrote it; leave --since out.")
    return _lines_from(path, begin)


def _lines_from(path: Path, offset: int) -> Iterator[str]:
    with path.open("rb") as file:
        file.seek(offset)
        for line in file:
            yield line.decode(errors="replace").removesuffix("\n")


def _summary(folder: Path) -> RunSummary | None:
    """A run by its folder; None for a folder of another kind."""
    began = read_start_time(folder)
    # Asked before the record and the address, which are made later: a run that has just begun to run is not over.
    if is_starting(folder) and began is not None:
        return RunSummary(run_id=folder.name, status=RunStatus.STARTING, started_at=began)
    document = _document(folder / RECORD)
    if document is not None:
        return RunSummary(
            run_id=folder.name,
            status=RunStatus(document["status"]),
            started_at=began or datetime.fromisoformat(document["started_at"]),
            ended_at=datetime.fromisoformat(document["ended_at"]) if document.get("ended_at") else None,
            restarts=len(document.get("restarts") or ()),
            note=_note(document),
            owner=read_owner(document.get("owner")),
            team=document.get("team"),
            project=document.get("project"),
        )
    address = read_address(folder)
    if address is not None:
        started_at = began or datetime.fromisoformat(address.started_at)
        return RunSummary(run_id=folder.name, status=RunStatus.RUNNING, started_at=started_at)
    if began is None and (folder / LOGS).is_dir():
        began = datetime.fromtimestamp((folder / LOGS).stat().st_ctime, UTC)
    return None if began is None else RunSummary(run_id=folder.name, status=RunStatus.ABORTED, started_at=began)


def _note(document: Mapping[str, Any]) -> str:
    """The error of a recorded run, or that it has warnings."""
    error = document.get("error")
    if isinstance(error, Mapping):
        return str(error.get("name", ""))
    return "with warnings" if document.get("warnings") else ""


def _as_started(details: RunState, folder: Path) -> RunState:
    """The details with the time of the start of the run, before its execution."""
    began = read_start_time(folder)
    return details if began is None else replace(details, started_at=began)


def _document(path: Path) -> dict[str, Any] | None:
    """A record, as far as a list needs it; None if it is missing or unreadable."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        RunStatus(document["status"])
        datetime.fromisoformat(document["started_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    found: dict[str, Any] = document
    return found


def _recorded_details(folder: Path) -> RunState | None:
    """Read a record without its model; None if it cannot be read."""
    from trainflow.observed.run_state import recorded_state

    document = _document(folder / RECORD)
    if document is None:
        return None
    try:
        return recorded_state(document)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None


def _record(folder: Path) -> RunRecord | None:
    from pydantic import ValidationError

    from trainflow.workflow.run_record import RunRecord

    try:
        return RunRecord.model_validate_json((folder / RECORD).read_text(encoding="utf-8"))
    except (OSError, ValidationError):
        return None


def _connected_deployment(address: TwinAddress, hint_words: tuple[str, ...]) -> DeployedRuns:
    import boto3
    from botocore.config import Config

    from trainflow.client.observe.cluster import READ_SECONDS
    from trainflow.client.runs import DeployedRuns
    from trainflow.deployment.address import DeploymentAddress
    from trainflow.kubernetes.api import KubernetesApi
    from trainflow.kubernetes.connection import from_kubeconfig

    session = boto3.Session(
        aws_access_key_id=address.access_key_id,
        aws_secret_access_key=address.secret_access_key,
        region_name=address.region,
    )
    own = Config(proxies={})  # the twin is on this machine

    def client(service: str) -> Any:
        return session.client(service, endpoint_url=address.endpoint, config=own)  # type: ignore[call-overload]

    return DeployedRuns(
        DeploymentAddress.model_validate(address.deployment),
        client=client,
        kubernetes=lambda: KubernetesApi(from_kubeconfig(Path(address.kubeconfig)), read_seconds=READ_SECONDS),
        hint_words=hint_words,
    )
