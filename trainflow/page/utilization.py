"""Utilization of a run's nodes, measured at intervals while a page shows the run."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass
from functools import partial
from typing import Protocol, runtime_checkable

from trainflow.background import Worker, described
from trainflow.client.observe.utilization import Utilization
from trainflow.errors import TrainflowError
from trainflow.observed.run_state import RunState

ASK_SECONDS = 20.0
"""Time between two requests: an account publishes a value a minute."""


@runtime_checkable
class MeasuresNodes(Protocol):
    """A place that publishes how busy nodes are: `trainflow.client.runs.DeployedRuns`."""

    def node_utilization(self, run_id: str, nodes: Collection[str]) -> Utilization | None:
        """Present utilization of nodes of a run; None if unknown."""


@dataclass(frozen=True)
class Busy:
    """Known utilization of the nodes of a run."""

    utilization: Utilization | None = None
    trouble: str = ""
    """Reason why it is unknown; a sentence."""


class NodesOfRun:
    """The nodes of one run. A view of it never waits: it has what was answered last."""

    def __init__(self, place: object | None, run_id: str) -> None:
        """Asks nothing yet."""
        self._place, self._run_id = place, run_id
        self._asked_at = -ASK_SECONDS
        self._asked_nodes: Collection[str] = ()
        self._thread: Worker | None = None
        self._busy = Busy()

    def busy(self, snapshot: RunState) -> Busy:
        """The utilization now; after the end of the run, the last one that was read."""
        nodes = nodes_of(snapshot)
        is_due = time.monotonic() >= self._asked_at + ASK_SECONDS or nodes != self._asked_nodes
        is_asking = self._thread is not None and self._thread.is_alive()
        if nodes and is_due and not is_asking and isinstance(self._place, MeasuresNodes):
            self._asked_at, self._asked_nodes = time.monotonic(), nodes
            self._thread = Worker(partial(self._ask, self._place, nodes), name="nodes", on_error=self._note)
            self._thread.start()
        return self._busy

    def _ask(self, place: MeasuresNodes, nodes: Collection[str]) -> None:
        try:
            found = place.node_utilization(self._run_id, nodes)
        except TrainflowError as trouble:
            self._busy = self._unknown(trouble)
            return
        self._busy = Busy(found or self._busy.utilization)

    def _note(self, error: BaseException) -> None:
        self._busy = self._unknown(described(error))

    def _unknown(self, reason: object) -> Busy:
        return Busy(self._busy.utilization, f"How busy the nodes are is not known: {reason}")


def nodes_of(snapshot: RunState) -> frozenset[str]:
    """Nodes with a pod of the run."""
    return frozenset(pod.node for pod in snapshot.pods if pod.node and not pod.finished)
