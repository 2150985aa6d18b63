"""Temporary outages of the Kubernetes API for the functions, in every kind of failure.

Nodes and controllers have another way to the API, so trainings go on. That is how an outage of an endpoint, of a
network or of logins looks; an API server that is down as a whole also keeps nodes from reporting.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Self

from kubetwin.background import later
from kubetwin.kubeconfig import load_connection
from kubetwin.troubles import Trouble, TroubledGateway

from local.aws import deployment
from local.aws.faults import Fault
from local.twin import Twin

OUTAGE_SECONDS = 600.0
"""Ten minutes, which every try of an acting function outlasts."""

Phase = Callable[[str, Any], bool]
"""Whether the invocation of a function, by its name and event, belongs to a phase of a run."""

PHASES: Mapping[str, Phase] = {
    "preflight": lambda function, _event: function == "Preflight",
    "staging": lambda function, _event: function == "StageData",
    "capacity": lambda function, _event: function == "EnsureCapacity",
    "submission of the precompile job": lambda function, event: _submits(function, event, "precompile"),
    "precompile": lambda function, event: function == "PollJob" and event["job"]["stage"] == "precompile",
    "check of the compilation": lambda function, _event: function == "CheckCompilation",
    "submission of the training": lambda function, event: _submits(function, event, "training"),
    "queueing": lambda function, event: _polls_training(function, event) and event["phase"] == "pending",
    "training": lambda function, event: _polls_training(function, event) and event["phase"] == "running",
    "metrics": lambda function, _event: function in ("LocateRank0", "PublishMetrics"),
    "restart": lambda function, event: function == "TearDown" and "job" in event,
    "diagnostics": lambda function, _event: function == "CollectDiagnostics",
    "tear-down": lambda function, event: function == "TearDown" and "job" not in event,
    "publishing": lambda function, _event: function == "PublishArtifacts",
}
"""Phases of a run, in their order."""

OF_FAILURES = ("restart", "diagnostics")
"""Phases that a run without a failure does not reach."""


def _submits(function: str, event: Any, stage: str) -> bool:
    return function == "SubmitJob" and event["stage"] == stage


def _polls_training(function: str, event: Any) -> bool:
    return function == "PollJob" and event["job"]["stage"] == "training"


class FunctionsGateway:
    """A gateway between the functions and the twin's Kubernetes API, which can fail."""

    def __init__(self, twin: Twin) -> None:
        self._eks = twin.client("eks")
        self._gateway = TroubledGateway(load_connection(twin.kubeconfig))

    @property
    def failed(self) -> int:
        """Requests that met a trouble."""
        return self._gateway.failed

    @contextmanager
    def open(self) -> Iterator[None]:
        """Let `eks:DescribeCluster` name the gateway inside the block, and afterwards what it named before."""
        before = self._eks.describe_cluster(name=deployment.CLUSTER_NAME)["cluster"]
        self._gateway.start()
        try:
            self._set_endpoint()
            yield
        finally:
            deployment.set_endpoint(
                kubernetes_endpoint=before["endpoint"], ca_data=before["certificateAuthority"]["data"]
            )
            self._gateway.stop()

    def begin(self, trouble: Trouble) -> None:
        """Fail from now on."""
        self._gateway.begin(trouble)

    def end(self) -> None:
        """Answer again; `eks:DescribeCluster` names the present authority."""
        self._gateway.end()
        self._set_endpoint()

    def _set_endpoint(self) -> None:
        deployment.set_endpoint(kubernetes_endpoint=self._gateway.endpoint, ca_data=self._gateway.ca_data)


class OutageInEachPhase:
    """A plan without failing functions: an outage begins with the first invocation of each phase.

    Phases that a run reaches during an outage have none of their own, so each is met only if the one before is over. An
    outage that goes on at the end of the block ends there.
    """

    def __init__(
        self,
        gateway: FunctionsGateway | TroubledGateway,
        trouble: Trouble,
        *,
        seconds: float,
        phases: Sequence[str] = (),
    ) -> None:
        """
        Args:
            gateway: What fails.
            trouble: The kind of failure.
            seconds: Length of each outage on this machine's clock.
            phases: Names of the phases; all of them by default.
        """
        self._gateway, self._trouble, self._seconds = gateway, trouble, seconds
        self._left = list(phases or PHASES)
        self._timer: threading.Timer | None = None
        """Ends the present outage; None without one."""
        self._lock = threading.Lock()
        self.met: list[str] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._left.clear()  # an invocation that is on its way begins no further outage
            timer = self._timer
        if timer is not None:
            timer.cancel()
            self._end()

    def __call__(self, function: str, event: Any) -> Fault | None:
        with self._lock:
            phase = next((each for each in self._left if PHASES[each](function, event)), None)
            if phase is not None and self._timer is None:
                self._left.remove(phase)
                self.met.append(phase)
                self._gateway.begin(self._trouble)
                self._timer = later(self._seconds, self._end, name="the end of an outage")
                self._timer.start()
        return None

    def _end(self) -> None:
        with self._lock:
            if self._timer is not None:
                self._gateway.end()
                self._timer = None
