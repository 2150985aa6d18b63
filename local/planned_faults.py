"""A plan of faults from a file, and what became of each of them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from kubetwin.background import later
from kubetwin.client import ApiClient, ApiUnreachable, RequestRefused
from kubetwin.kubeconfig import load_connection

from local.api_outages import FunctionsGateway
from local.aws.current_states import state_of
from local.aws.faults import Fault
from local.aws.server import REGION
from local.fault_file import Faults, FunctionFault, LostNode, Moment, Outage, Throttling, functions_of_states
from local.twin import Twin

OUT_OF_SERVICE = {"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}
"""Taint of a node whose instance has ended (Kubernetes, "Node Shutdowns")."""

Entry = FunctionFault | Throttling | Outage | LostNode


class PlannedFaults:
    """The plan of `Twin(faults=plan, throttled=plan.throttle)`. Nothing happens before `started`."""

    def __init__(self, faults: Faults, *, time_scale: float) -> None:
        """
        Args:
            faults: What happens.
            time_scale: The twin's.
        """
        self._faults, self._time_scale = faults, time_scale
        self._lock = threading.Lock()
        self._entries: list[Entry] = [*faults.functions, *faults.throttling, *faults.kubernetes_api, *faults.nodes]
        self._counted, self._injected = [0] * len(self._entries), [0] * len(self._entries)
        self._refusals: dict[int, str] = {}
        self._began: float | None = None
        self._gateway: FunctionsGateway | None = None
        self._outages, self._failed_requests = 0, 0
        self._timers: list[threading.Timer] = []
        self._api: ApiClient | None = None

    @contextmanager
    def opened(self, twin: Twin) -> Iterator[None]:
        """Reach the cluster of a twin that runs, inside the block; an outage that goes on ends with it."""
        with ExitStack() as last:
            if self._faults.kubernetes_api:
                self._gateway = FunctionsGateway(twin)
                last.enter_context(self._gateway.open())
                last.callback(self._cancel)
            if self._faults.nodes:
                self._api = ApiClient(load_connection(twin.kubeconfig))
                last.callback(self._api.close)
            yield

    def started(self) -> None:
        """Begin to count calls and time: the first run starts."""
        with self._lock:
            self._began = self._began or time.monotonic()

    def announced(self) -> list[str]:
        """The planned faults, one sentence each."""
        return [f"Fault: {entry}." for entry in self._entries]

    def told(self) -> list[str]:
        """The results of the planned faults, one sentence each."""
        with self._lock:
            found = [
                f"{_outcome(times, _first_and_number(entry)[1])}: {entry}."
                for entry, times in zip(self._entries, self._injected, strict=True)
            ]
            if self._faults.kubernetes_api:
                found.append(
                    f"Requests of functions to the Kubernetes API that met an outage: {self._failed_requests}."
                )
            return found + list(self._refusals.values())

    def __call__(self, function: str, event: Any) -> Fault | None:
        """The fault of a call; see `FaultPlan`."""
        name = function.rsplit("-", 1)[-1]
        state = _Once(lambda: state_of(event, region=REGION))
        due = self._due(lambda entry: isinstance(entry, Moment) and _is_meant(entry, name, state))
        for index, entry in due:
            if isinstance(entry, Outage):
                self._begin(entry)
            elif isinstance(entry, LostNode):
                self._lose(index, entry)
        return next((entry.fault for _, entry in due if isinstance(entry, FunctionFault)), None)

    def throttle(self, service: str, operation: str) -> str | None:
        """The error code of a throttled request; see `RequestPlan`."""
        due = self._due(
            lambda entry: (
                isinstance(entry, Throttling) and entry.service == service and entry.operation in (None, operation)
            )
        )
        return next((entry.code for _, entry in due if isinstance(entry, Throttling)), None)

    def _due(self, is_meant: Callable[[Entry], bool]) -> list[tuple[int, Entry]]:
        """Entries that happen with a call or request, each counted as injected; of several faults of one call or
        request the first, and the others wait for the next one."""
        if self._began is None:
            return []
        seconds = (time.monotonic() - self._began) * self._time_scale
        meant = [index for index, each in enumerate(self._entries) if seconds >= each.after_seconds and is_meant(each)]
        due, has_fault = list[tuple[int, Entry]](), False
        with self._lock:
            for index in meant:
                entry = self._entries[index]
                self._counted[index] += 1
                first, number = _first_and_number(entry)
                if self._counted[index] < first or self._injected[index] >= number:
                    continue
                if isinstance(entry, FunctionFault | Throttling):
                    if has_fault:
                        continue
                    has_fault = True
                self._injected[index] += 1
                due.append((index, entry))
        return due

    def _begin(self, outage: Outage) -> None:
        with self._lock:
            if self._gateway is None:  # the twin ends
                return
            self._outages += 1
            self._gateway.begin(outage.trouble)
            timer = later(outage.lasts_seconds / self._time_scale, self._end, name="the end of an outage")
            self._timers.append(timer)
            timer.start()

    def _end(self) -> None:
        """End an outage; of several at once, the last one to end ends the trouble."""
        with self._lock:
            self._outages -= 1
            if self._outages == 0 and self._gateway is not None:
                self._gateway.end()

    def _cancel(self) -> None:
        with self._lock:
            self._began = None  # a call that is on its way begins no further outage
            if self._gateway is not None:
                self._failed_requests = self._gateway.failed
            self._gateway = None
            timers, self._timers = self._timers, []
        for timer in timers:
            timer.cancel()

    def _lose(self, index: int, lost: LostNode) -> None:
        assert self._api is not None, "opened() comes before the first run"  # noqa: S101
        try:
            self._api.patch(f"/api/v1/nodes/{lost.node}", {"spec": {"taints": [OUT_OF_SERVICE]}})
        except (RequestRefused, ApiUnreachable) as refusal:
            with self._lock:  # a node that is not there yet is lost with a later call
                self._injected[index] -= 1
                self._refusals[index] = f"Node {lost.node} could not be lost: {refusal}."
        else:
            self._refusals.pop(index, None)


def _outcome(times: int, number: int) -> str:
    if not times:
        return "Never came"
    return "Injected" if times == number else f"Injected {times} of {number} times"


def _first_and_number(entry: Entry) -> tuple[int, int]:
    """Number of the first affected call or request of an entry, and the number of affected ones."""
    if isinstance(entry, Throttling):
        return entry.request, entry.requests
    return entry.call, entry.number


class _Once:
    """A value that is found when it is first asked for."""

    def __init__(self, find: Callable[[], str | None]) -> None:
        self._find, self._found = find, list[str | None]()

    def __call__(self) -> str | None:
        if not self._found:
            self._found.append(self._find())
        return self._found[0]


def _is_meant(moment: Moment, function: str, state: Callable[[], str | None]) -> bool:
    if moment.function is not None:
        return moment.function == function
    if moment.state is None:
        return True
    return functions_of_states()[moment.state] == function and state() == moment.state
