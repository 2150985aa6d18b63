"""A place that replays recorded runs."""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from recorded_runs import RecordedRun
from replay import ReplayedObserver

from trainflow.client.code import PackedCode
from trainflow.client.observe.utilization import Utilization
from trainflow.client.place import FollowedRun, LogRequest, PlaceRefused, RunNotFound, RunSummary
from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.spec.run_spec import RunSpec
from trainflow.workflow.run_record import RunError, RunRecord, RunStatus

STARTED_AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)


class ReplayedRun:
    """A `FollowedRun` that is one poll further with each snapshot."""

    def __init__(self, run: RecordedRun, *, polls: int, log_dir: Path) -> None:
        self._run, self._log_dir = run, log_dir
        self._observer = ReplayedObserver(run, polls=polls)
        self._stopped: RunError | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        self._log_dir.mkdir(parents=True, exist_ok=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""

    def snapshot(self) -> RunState:
        with self._lock:
            taken = self._observer.snapshot()
        for pod in taken.pods:
            if pod.has_log:
                (self._log_dir / f"{pod.name}.log").write_text("".join(f"{line}\n" for line in self._run.log))
        spec = self._run.history.input() or {}
        taken = replace(taken, spec=spec, arn=self._run.history.arn)
        if self._stopped is None:
            return taken
        return replace(taken, status=RunStatus.ABORTED, error=self._stopped, ended_at=taken.observed_at)

    def stop(self, reason: RunError) -> None:
        self._stopped = reason

    def is_finished(self) -> bool:
        return self._observer.is_finished()

    def record(self, *, aborted: RunError | None = None) -> RunRecord:
        return self._run.record()

    def steps(self) -> list[Step]:
        return self._run.lines


class ReplayedPlace:
    """A `Place` of recorded runs, which go on from the moment at which they are looked at."""

    name = "replay"
    hint_words: tuple[str, ...] = ()

    def __init__(self, runs: Sequence[RecordedRun], *, polls: int, folder: Path) -> None:
        self._runs = {run.run_id: run for run in runs}
        self._polls, self._folder = polls, folder
        self._followed: dict[str, ReplayedRun] = {}
        self.resumed: list[str] = []
        """Runs that were to be continued."""

    def start(self, spec: RunSpec, *, code: PackedCode | None = None) -> str:
        raise NotImplementedError

    def runs(self) -> list[RunSummary]:
        return [self.describe(run_id) for run_id in self._runs]

    def describe(self, run_id: str) -> RunSummary:
        if run_id not in self._runs:
            raise RunNotFound(f"There is no run '{run_id}' here.")
        run = self._runs[run_id]
        return RunSummary(run_id=run_id, status=RunStatus.RUNNING, started_at=run.history.started_at or STARTED_AT)

    def follow(self, run_id: str, *, log_dir: Path) -> FollowedRun:
        self.describe(run_id)
        self._followed[run_id] = ReplayedRun(self._runs[run_id], polls=self._polls, log_dir=log_dir)
        return self._followed[run_id]

    def resume(self, run_id: str) -> str:
        """The place's first run continues any other."""
        self.resumed.append(run_id)
        return next(iter(self._runs))

    def stop(self, run_id: str, *, reason: RunError) -> None:
        self._followed[run_id].stop(reason)


class ReplayedDeployment(ReplayedPlace):
    """A place of recorded runs that has what a deployment has beside them, for a caller who may not see everything."""

    def log(self, run_id: str, request: LogRequest) -> Iterator[str]:
        request.notify("These are the last lines that it has kept.")
        return iter([f"{request.pod or request.rank} of {run_id}", "a line with a Word"])

    def node_utilization(self, run_id: str, nodes: Collection[str]) -> Utilization:
        return Utilization(of="NeuronCores", by_node={node: 80.0 + 5 * at for at, node in enumerate(sorted(nodes))})

    def definition(self, run_id: str) -> Mapping[str, Any]:
        raise PlaceRefused("These credentials may not call states:DescribeStateMachineForExecution: no.")
