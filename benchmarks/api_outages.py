"""Outages of the Kubernetes API as the functions see them: one in each phase of a run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

from kubetwin.background import later
from kubetwin.troubles import Trouble, TroubledGateway

from local.aws.faults import Fault
from local.functions_gateway import FunctionsGateway

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


class OutageInEachPhase:
    """A plan of faults without failing functions: with the first invocation of each phase, an outage begins.

    An outage covers every phase that a run reaches meanwhile, so each is met only if the one before is over.
    An outage that goes on at the end of the block ends there.
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
            trouble: Kind of failure.
            seconds: Length of each outage on this machine's clock.
            phases: Names of the phases; all of them by default.
        """
        self._gateway, self._trouble, self._seconds = gateway, trouble, seconds
        self._left = list(phases or PHASES)
        self._timer: threading.Timer | None = None
        """Ends the present outage; None between outages."""
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
