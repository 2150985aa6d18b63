"""The runs that the page shows: those of a place, as they go on, and those that left a folder."""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from trainflow.client.owned_folder import OwnedFolder
from trainflow.client.place import FollowedRun, RunNotFound, Runs, RunSummary
from trainflow.observed.pod import Pod
from trainflow.observed.run_state import RunState
from trainflow.page.curves import RunCurves
from trainflow.page.drawings import Drawings
from trainflow.page.ended import EndedRuns, is_name
from trainflow.page.fetched import RANK, FetchedLogs, GivesLogs, OpenLog
from trainflow.page.marks import Mark, marks
from trainflow.page.strip import usual_seconds
from trainflow.page.utilization import Busy, NodesOfRun
from trainflow.record.failure import explained
from trainflow.record.run_commands import pasted
from trainflow.record.run_states import state_of_record
from trainflow.record.steps import KeptSteps
from trainflow.workflow.run import Stage
from trainflow.workflow.run_record import RunStatus

SNAPSHOT_SECONDS = 0.4
"""Seconds until a run is asked again: two views of it, or two tabs, share an answer."""

LIST_SECONDS = 3.0
"""The same for the list of runs, which costs a request to AWS."""

KEPT_SECONDS = 5.0
"""The same for the steps that a deployment keeps."""

USUAL_SECONDS = 30.0
"""The same for the usual lengths of phases, which are computed from all records."""

RESUMED = frozenset({RunStatus.FAILED, RunStatus.ABORTED, RunStatus.TIMED_OUT})
"""Final statuses of runs that may be continued unchanged; one that has succeeded needs another spec."""

STOPPED = explained("Aborted", "The run was stopped from the page.")


@runtime_checkable
class KeepsSteps(Protocol):
    """A place that has the steps of a run beside its logs: `trainflow.client.runs.DeployedRuns`."""

    def kept_steps(self, run_id: str) -> KeptSteps | None:
        """The steps that the workflow kept of a run; None without any."""


@runtime_checkable
class KeepsRuns(Protocol):
    """A place that keeps ended runs whose pods are gone: `trainflow.client.runs.DeployedRuns`."""

    def copy_ended(self, run_id: str, folder: Path) -> bool:
        """Write what is kept of an ended run to a folder, as a run of this machine leaves it; False if nothing is."""


@runtime_checkable
class KeepsArtifacts(Protocol):
    """A place with a folder of artifacts for each run: `trainflow.client.runs.DeployedRuns`."""

    def artifacts_url(self, run_id: str) -> str:
        """The folder in S3."""


class Snapshots(Protocol):
    """Source of a run's snapshots for the page: a `FollowedRun`, or a test's replay."""

    def snapshot(self) -> RunState:
        """The run's present state."""


@dataclass(frozen=True, kw_only=True)
class RunNow:
    """A run at one moment, with its curves."""

    snapshot: RunState
    known_curves: RunCurves
    """The curves as they were asked for last."""
    steps_version: int
    """Grows when there may be new steps."""
    marks: tuple[Mark, ...]
    log_dir: Path
    can_stop: bool
    can_resume: bool = False
    """Whether a run that continues this one may be started: it has ended, and not as it should."""
    report: Path | None = None
    busy: Busy = field(default_factory=Busy)
    """Utilization of its nodes."""
    fetched: FetchedLogs | None = None
    """Logs that are not in `log_dir`; None if the place does not keep others."""
    has_tails: bool = False
    """Whether the logs in `log_dir` are the last lines that an ended run has kept."""

    def curves(self) -> RunCurves:
        """The curves with all steps; reading a million for the first time takes a second."""
        self.known_curves.update(self.snapshot.steps)
        return self.known_curves

    def logs(self) -> list[str]:
        """Names of the pods with a log."""
        return sorted(log.stem for log in self.log_dir.glob("*.log"))

    def log(self, name: str) -> OpenLog | None:
        """The log of a pod, or of a `rank 7`; None if it is not here."""
        name = name if self.has_tails else self._pod_name(name)
        path = self.log_dir / f"{name}.log"
        if not is_name(name):
            return None
        if path.is_file() and (self.fetched is None or not self.has_tails):
            return OpenLog(path=path)
        if self.fetched is None:
            return None
        return self.fetched.open(name, follow=not self.snapshot.status.is_over)

    def has_log(self, pod: Pod) -> bool:
        """Whether the log of a pod can be opened."""
        return self.fetched is not None and (pod.has_log or self.snapshot.status.is_over)

    def _pod_name(self, name: str) -> str:
        """The pod that has a rank now, if it is known; other names stay as they are."""
        rank = RANK.fullmatch(name)
        pods = [pod for pod in self.snapshot.pods if pod.stage == Stage.TRAINING] if rank else []
        newest = max((pod.attempt for pod in pods), default=0)
        at_rank = [pod.name for pod in pods if pod.attempt == newest and rank and pod.index == int(rank[1])]
        return at_rank[-1] if at_rank else name


class WatchedRun:
    """One run, asked no more often than is shown."""

    def __init__(
        self,
        *,
        source: Callable[[], RunState],
        nodes: NodesOfRun,
        log_dir: Path,
        can_stop: bool,
        can_resume: bool,
        report: Path,
        fetched: FetchedLogs | None,
        has_tails: bool,
    ) -> None:
        self._source, self._nodes, self._log_dir, self._report = source, nodes, log_dir, report
        self._fetched, self._has_tails = fetched, has_tails
        self._can_stop, self._can_resume = can_stop, can_resume
        self._curves = RunCurves()
        self._lock = threading.Lock()
        self._now: RunNow | None = None
        self._steps_version = 0
        self._asked_at = 0.0

    def now(self) -> RunNow:
        """The run as it is now, or was a moment ago."""
        with self._lock:
            if self._now is None or (
                self._now.snapshot.status is RunStatus.RUNNING and time.monotonic() >= self._asked_at + SNAPSHOT_SECONDS
            ):
                self._now = self._asked()
                self._asked_at = time.monotonic()
            return self._now

    def ask_again(self) -> None:
        """Let the next view of the run be a new one."""
        with self._lock:
            self._asked_at = 0.0

    def _asked(self) -> RunNow:
        snapshot = self._source()
        before = self._now.snapshot.steps if self._now else ()
        # A training that was started again replaces steps amid the others.
        is_repeating = any(pod.stage == Stage.TRAINING and pod.attempt > 1 for pod in snapshot.pods)
        if is_repeating or len(before) != len(snapshot.steps) or (before and before[-1] is not snapshot.steps[-1]):
            self._steps_version += 1
        if self._curves.version:  # they are drawn somewhere
            self._curves.update(snapshot.steps)
        return RunNow(
            snapshot=snapshot,
            known_curves=self._curves,
            steps_version=self._steps_version,
            marks=marks(snapshot),
            log_dir=self._log_dir,
            can_stop=self._can_stop and snapshot.status is RunStatus.RUNNING,
            can_resume=self._can_resume and snapshot.status in RESUMED,
            report=self._report if self._report.is_file() else None,
            busy=self._nodes.busy(snapshot),
            fetched=self._fetched,
            has_tails=self._has_tails,
        )


class RunLibrary:
    """Runs by their ids. All methods may be called from several threads; those that ask AWS take their time."""

    def __init__(
        self,
        *,
        folder: Path,
        place: Runs | None = None,
        resume: Callable[[str], str] | None = None,
        workflow: Mapping[str, Any] | None = None,
        name: str = "",
        words: tuple[str, ...] = (),
    ) -> None:
        """Prepares the library; it does not ask the place yet.

        Args:
            folder: Folder of the folders of ended runs.
            place: Place of active runs; None to show only ended ones.
            resume: Starts a run at the place that continues an ended one, and returns its id; None if the place cannot
                start runs.
            workflow: Definition for runs whose own the place does not keep. Default: the repository's.
            name: Name of the place, for the title.
            words: Options of a command that name the place.
        """
        self.name, self.words = name, words
        self._ended, self._place, self._resume = EndedRuns(folder), place, resume
        self._usual: dict[str, tuple[float, int]] = {}
        self._usual_at = -USUAL_SECONDS
        self._resumed: dict[str, str] = {}
        self._resuming = threading.Lock()
        self.drawings = Drawings(place, workflow=workflow)
        self._watched: dict[str, WatchedRun] = {}
        self._followed: dict[str, Snapshots] = {}
        self._listed: list[RunSummary] = []
        self._listed_at = -LIST_SECONDS
        self._lock = threading.Lock()
        self._open = ExitStack()

    def __enter__(self) -> RunLibrary:
        return self

    def __exit__(self, *_: object) -> None:
        """End observing the runs that were looked at."""
        self._open.close()

    def adopt(self, run_id: str, followed: Snapshots, *, log_dir: Path) -> None:
        """Show a run that the caller observes already.

        Args:
            run_id: The run.
            followed: Its observer, which stays the caller's.
            log_dir: Folder that the observer writes the pods' logs to.
        """
        with self._lock:
            self._followed[run_id] = followed
            self._watched[run_id] = self._watch(run_id, followed.snapshot, log_dir)

    def summaries(self) -> list[RunSummary]:
        """All runs, the newest first.

        Raises:
            TrainflowError: If the place cannot be asked.
        """
        ended = [
            RunSummary(
                run_id=record.run_id,
                status=record.status,
                started_at=record.started_at,
                ended_at=record.ended_at,
                owner=record.owner,
                team=record.team,
                project=record.project,
            )
            for record in self._ended.records()
        ]
        adopted = [summary for run_id in list(self._followed) if (summary := self._run_summary(run_id)) is not None]
        found = {summary.run_id: summary for summary in (*ended, *adopted, *self._place_runs())}
        return sorted(found.values(), key=lambda summary: summary.started_at, reverse=True)

    def run(self, run_id: str) -> RunNow:
        """One run.

        Raises:
            RunNotFound: If the id is unknown.
            TrainflowError: If the place cannot be asked.
        """
        with self._lock:
            watched = self._watched.get(run_id)
            if watched is None:
                watched = self._watched[run_id] = self._found(run_id)
        return watched.now()

    def usual_seconds(self) -> dict[str, tuple[float, int]]:
        """Median length of each phase in this machine's runs that ended well, and the number of runs that had it."""
        if time.monotonic() >= self._usual_at + USUAL_SECONDS:
            self._usual_at = time.monotonic()
            self._usual = usual_seconds(state_of_record(record, ()) for record in self._ended.records())
        return self._usual

    def artifacts_url(self, run_id: str) -> str:
        """Folder of the run's artifacts in S3; empty for a place without S3."""
        return self._place.artifacts_url(run_id) if isinstance(self._place, KeepsArtifacts) else ""

    def hint(self, command: str, run_id: str) -> str:
        """A command line for a run that a person can paste."""
        return shlex.join(["trainflow", command, run_id, *self.words])

    def stop(self, run_id: str) -> None:
        """Stop a run, and wait until it has released what it holds.

        Raises:
            TrainflowError: If it cannot be stopped.
        """
        if self._place is None:
            raise RunNotFound(f"The run '{run_id}' has ended: there is nothing to stop.")
        self._place.stop(run_id, reason=STOPPED)
        with self._lock:
            watched = self._watched.get(run_id)
        if watched is not None:
            watched.ask_again()

    def resume(self, run_id: str) -> str:
        """Start a run that continues an ended one; its id.

        A repeated request, after a lost answer or a second press of the button, gets the run that was started already,
        while that one is active.

        Raises:
            TrainflowError: If it cannot be continued; nothing was started then.
        """
        if self._resume is None:
            hint = pasted("`trainflow resume RUN`", run_id, self.words)
            raise RunNotFound(f"The run '{run_id}' cannot be resumed from this page; use {hint}.")
        with self._resuming:
            started = self._resumed.get(run_id)
            if started is None or self.run(started).snapshot.status is not RunStatus.RUNNING:
                started = self._resumed[run_id] = self._resume(run_id)
        with self._lock:
            self._listed_at = -LIST_SECONDS
        return started

    def ask_again(self) -> None:
        """Let the next view of each run be a new one."""
        with self._lock:
            watched = list(self._watched.values())
        for each in watched:
            each.ask_again()

    def _place_runs(self) -> list[RunSummary]:
        if self._place is None:
            return []
        with self._lock:
            is_old = time.monotonic() >= self._listed_at + LIST_SECONDS
        if is_old:
            listed = self._place.runs()
            with self._lock:
                self._listed, self._listed_at = listed, time.monotonic()
        return self._listed

    def _run_summary(self, run_id: str) -> RunSummary | None:
        snapshot = self.run(run_id).snapshot
        if snapshot.started_at is None:
            return None
        return RunSummary(
            run_id=run_id,
            status=snapshot.status,
            started_at=snapshot.started_at,
            ended_at=snapshot.ended_at,
            owner=snapshot.owner,
            team=snapshot.team,
            project=snapshot.project,
        )

    def _found(self, run_id: str) -> WatchedRun:
        ended = self._ended.snapshot(run_id)
        if ended is not None:
            return self._watch(run_id, lambda: ended, self._ended.log_dir(run_id), has_left_logs=True)
        if self._place is None or not is_name(run_id):
            raise RunNotFound(f"There is no run '{run_id}' in {self._ended.folder}.")
        # The place's own observer may be writing the run's folder: this one writes to a folder of its own.
        log_dir = Path(self._open.enter_context(OwnedFolder("trainflow-page-")))
        if isinstance(self._place, KeepsRuns) and self._place.copy_ended(run_id, log_dir / run_id):
            copied = EndedRuns(log_dir)
            if (kept := copied.snapshot(run_id)) is not None:
                return self._watch(run_id, lambda: kept, copied.log_dir(run_id), report=copied.report(run_id))
        followed = self._open.enter_context(self._place.follow(run_id, log_dir=log_dir))
        return self._watch(run_id, _Supplemented(self._place, run_id, followed).snapshot, log_dir)

    def _watch(
        self,
        run_id: str,
        source: Callable[[], RunState],
        log_dir: Path,
        *,
        report: Path | None = None,
        has_left_logs: bool = False,
    ) -> WatchedRun:
        fetched = None
        if isinstance(self._place, GivesLogs) and not has_left_logs:
            fetched = FetchedLogs(self._place, run_id)
            self._open.callback(fetched.close)
        return WatchedRun(
            fetched=fetched,
            has_tails=report is not None,
            source=source,
            nodes=NodesOfRun(self._place, run_id),
            log_dir=log_dir,
            can_stop=self._place is not None,
            can_resume=self._resume is not None,
            report=(report or self._ended.report(run_id)) if is_name(run_id) else self._ended.folder,
        )


class _Supplemented:
    """A followed run whose steps and checkpoints come from the workflow where its logs cannot be read, or are gone."""

    def __init__(self, place: Runs, run_id: str, followed: FollowedRun) -> None:
        self._place, self._run_id, self._followed = place, run_id, followed
        self._kept: KeptSteps | None = None
        self._asked_at = -KEPT_SECONDS

    def snapshot(self) -> RunState:
        """The run's present state."""
        snapshot = self._followed.snapshot()
        if snapshot.steps or not isinstance(self._place, KeepsSteps):
            return snapshot
        if time.monotonic() >= self._asked_at + KEPT_SECONDS:
            self._kept, self._asked_at = self._place.kept_steps(self._run_id), time.monotonic()
        if self._kept is None:
            return snapshot
        return replace(snapshot, steps=self._kept.steps, checkpoints=self._kept.checkpoints)
