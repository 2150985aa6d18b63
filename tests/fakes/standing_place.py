"""A deployment with one run that stands still at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from recorded_runs import recorded

from tests.fakes.moments import TRACEBACK
from tests.fakes.runs import spec_with
from trainflow.client.artifacts import Artifact
from trainflow.client.messages import Message
from trainflow.client.place import LogRequest, RunSummary
from trainflow.kubernetes.api import KubernetesApi
from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.report.page import render_report
from trainflow.spec.run_spec import RunSpec, parse_run_spec
from trainflow.workflow.leftovers import SweepReport
from trainflow.workflow.run_record import RunError


class StandingPlace:
    """A `RunReader` whose answers follow from a run's state."""

    name = "standing"
    hint_words: tuple[str, ...] = ()

    def __init__(self, state: RunState, *, api: KubernetesApi, namespace: str) -> None:
        self._state, self._cluster = state, (api, namespace)
        self.stopped: list[str] = []
        self.started: list[RunSpec] = []

    def runs(self) -> list[RunSummary]:
        return [self.describe(self._state.run_id)]

    def describe(self, run_id: str) -> RunSummary:
        assert run_id == self._state.run_id
        began = self._state.started_at or datetime.now(UTC)
        return RunSummary(run_id=run_id, status=self._state.status, started_at=began, ended_at=self._state.ended_at)

    def details(self, run_id: str) -> RunState:
        return self._state

    def log(self, run_id: str, request: LogRequest) -> Iterator[str]:
        yield f"rank {request.rank} of {run_id}"
        yield from TRACEBACK

    def steps(self, run_id: str) -> list[Step]:
        return list(self._state.steps)

    def stop(self, run_id: str, *, reason: RunError) -> None:
        self.stopped.append(run_id)

    def spec_continuing(self, run_id: str, changes: Mapping[str, Any], *, from_step: int | None) -> RunSpec:
        return parse_run_spec(spec_with(**{name.replace(".", "__"): value for name, value in changes.items()}))

    def start(self, spec: RunSpec) -> str:
        self.started.append(spec)
        return "next-0123456789ab"

    def artifacts(self, run_id: str) -> list[Artifact]:
        return [Artifact(name="step_400.pt", key=f"runs/{run_id}/step_400.pt", size=7, modified_at=datetime.now(UTC))]

    def messages(self, run_id: str) -> list[Message]:
        return []

    def report(self, run_id: str) -> str:
        return render_report(recorded("succeeded").record(), ())

    def cluster(self, run_id: str) -> tuple[KubernetesApi, str]:
        return self._cluster

    def sweep(self, *, delete: bool) -> SweepReport:
        return SweepReport(deleted=delete, runs=[])
