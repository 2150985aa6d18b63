"""Runs one pod from its binding to its end."""

from __future__ import annotations

import contextlib
import logging
import queue
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubetwin.background import Worker, surviving
from kubetwin.client import ApiUnreachable, RequestRefused
from kubetwin.model import times
from kubetwin.node.container import Exit
from kubetwin.node.container_slot import ContainerSlot, NodeTools
from kubetwin.node.launching import pod_folder, volume_folder
from kubetwin.node.status import PodState, by_type, phase_of, pod_status, strategic_patch
from kubetwin.node.volumes import VolumeError, prepare_volumes

_LOG = logging.getLogger(__name__)

_RETRY_SECONDS = 1.0
"""Pause between two attempts while an object is missing or the server does not answer."""

_DEFAULT_GRACE_SECONDS = 30


@dataclass(frozen=True)
class _PodChanged:
    pod: dict[str, Any]


@dataclass(frozen=True)
class _PodRemoved:
    """The pod's object was deleted, so its status is not reported any more."""


@dataclass(frozen=True)
class _NodeStops:
    grace_seconds: float


@dataclass(frozen=True)
class _ContainerEnded:
    slot: ContainerSlot
    exit: Exit


@dataclass(frozen=True)
class _Probed:
    """A probe has changed what a container is."""


_Message = _PodChanged | _PodRemoved | _NodeStops | _ContainerEnded | _Probed


class PodWorker:
    """A thread that owns one pod. Everything that happens to the pod reaches it as a message.

    Args:
        pod: The pod, bound to this node.
        tools: Parts of the node that its workers share.
        on_finished: Called with the worker when it has nothing more to do.

    Attributes:
        pod: The pod as it was last seen.
        removed: Whether the pod's object was deleted.
    """

    def __init__(self, pod: dict[str, Any], tools: NodeTools, on_finished: Callable[[PodWorker], None]) -> None:
        self.pod = pod
        self._tools = tools
        self._on_finished = on_finished
        self._inbox: queue.SimpleQueue[_Message] = queue.SimpleQueue()
        self._thread = Worker(self._run, name=f"pod-{pod['metadata']['name']}", on_error=self._fail)
        status, spec = pod.get("status") or {}, pod["spec"]
        self._policy: str = spec.get("restartPolicy") or "Always"
        self._started_at = times.parse(status["startTime"]) if status.get("startTime") else datetime.now(UTC)
        told = (self._container_ended, lambda: self._inbox.put(_Probed()))
        self._init_slots = [
            ContainerSlot(container, pod, tools, *told, init=True) for container in spec.get("initContainers") or []
        ]
        self._slots = [ContainerSlot(container, pod, tools, *told) for container in spec["containers"]]
        self._volumes: dict[str, Path] | None = None
        self._mount_error = ""
        self._now = time.monotonic()
        self._retry_at: float | None = None
        self._kill_at: float | None = None
        self._ending = False
        self._leaving: ContainerSlot | None = None
        self._reason = self._message = ""
        self.removed = False
        self._node_stops = False
        self._reported = by_type(status)
        self._sent: dict[str, Any] = {}

    @property
    def uid(self) -> str:
        """The pod's uid."""
        return str(self.pod["metadata"]["uid"])

    def start(self) -> None:
        """Begin to run the pod."""
        self._thread.start()

    def update(self, pod: dict[str, Any]) -> None:
        """The pod's object has changed."""
        self.pod = pod
        self._inbox.put(_PodChanged(pod))

    def remove(self) -> None:
        """Kill the processes of a pod whose object was deleted."""
        self._inbox.put(_PodRemoved())

    def shut_down(self, grace_seconds: float) -> None:
        """End the pod within `grace_seconds`, because the node stops, and report it once."""
        self._inbox.put(_NodeStops(grace_seconds))

    def join(self, timeout_seconds: float) -> None:
        """Wait for the worker's end."""
        self._thread.join(timeout_seconds)

    def _container_ended(self, slot: ContainerSlot, exit_: Exit) -> None:
        self._inbox.put(_ContainerEnded(slot, exit_))

    def _run(self) -> None:
        try:
            for slot in self._all_slots():
                slot.restore()
            self._handle(_PodChanged(self.pod))
            while not self._step():
                self._receive()
        finally:
            for slot in self._all_slots():
                surviving(slot.kill, name="the end of a pod")
            self._on_finished(self)

    def _fail(self, error: BaseException) -> None:
        """Report the pod as failed: nobody runs it any more, and whoever waits for it must not wait for ever."""
        status = {
            "phase": "Failed",
            "reason": "UnexpectedError",
            "message": f"The node met an unexpected error: {type(error).__name__}: {error}",
        }
        with contextlib.suppress(RequestRefused, ApiUnreachable):
            self._tools.api.patch(self._path("/status"), {"metadata": {"uid": self.uid}, "status": status})

    def _receive(self) -> None:
        """Wait for a message or the next appointed time; take all the messages there are."""
        due = min(self._appointments(), default=None)
        timeout = None if due is None else max(0.0, due - time.monotonic())
        try:
            self._handle(self._inbox.get(timeout=timeout))
            while True:
                self._handle(self._inbox.get_nowait())
        except queue.Empty:
            return

    def _appointments(self) -> Iterator[float]:
        yield from (moment for moment in (self._retry_at, self._kill_at, self._deadline()) if moment is not None)
        if not self._ending:
            yield from (slot.start_at for slot in self._all_slots() if slot.is_due_after(self._now))

    def _handle(self, message: _Message) -> None:
        if isinstance(message, _ContainerEnded):
            is_over = message.slot.is_sidecar and self._only_sidecars_are_left()
            message.slot.ended(message.exit, restart=not self._ending and not is_over)
        elif isinstance(message, _Probed):
            for slot in self._all_slots():
                slot.take_probes()
        elif isinstance(message, _PodRemoved):
            self.removed = True
            self._end(0)
        elif isinstance(message, _NodeStops):
            self._node_stops = True
            text = "Pod was terminated in response to imminent node shutdown."
            self._end(message.grace_seconds, "Terminated", text)
        elif message.pod["metadata"].get("deletionTimestamp"):
            self._end(message.pod["metadata"].get("deletionGracePeriodSeconds") or 0)

    def _step(self) -> bool:
        """Do the steps that are due. Returns whether the pod's work is finished."""
        now = self._now = time.monotonic()
        self._retry_at = None
        if self._kill_at is not None and now >= self._kill_at:
            self._kill_at = None
            for slot in self._all_slots():
                slot.kill()
        deadline = self._deadline()
        if deadline is not None and now >= deadline:
            text = "Pod was active on the node longer than the specified deadline"
            self._end(self._termination_grace(), "DeadlineExceeded", text)
        if not self._ending and not self._only_sidecars_are_left():
            self._start_what_is_due(now)
        self._end_sidecars()
        return self._conclude()

    def _only_sidecars_are_left(self) -> bool:
        """Whether the other containers have ended, and none of them is started again."""
        others = [slot for slot in self._all_slots() if not slot.is_sidecar]
        ended = all(slot.process is None for slot in others)
        return ended and (self._ending or not self._sidecars_matter())

    def _sidecars_matter(self) -> bool:
        state = self._state()
        without = replace(state, init_containers=[each for each in state.init_containers if not each.sidecar])
        return phase_of(without) not in ("Succeeded", "Failed")

    def _end_sidecars(self) -> None:
        """End the sidecars after the other containers, the last one first."""
        if not self._only_sidecars_are_left():
            return
        running = [slot for slot in self._init_slots if slot.is_sidecar and slot.process is not None]
        for slot in self._init_slots:
            if slot.is_sidecar and slot.process is None:
                slot.terminate(immediately=False)
        if running and running[-1] is not self._leaving:
            self._leaving = running[-1]
            self._leaving.terminate(immediately=False)
            if self._kill_at is None:
                self._kill_at = time.monotonic() + self._termination_grace()

    def _deadline(self) -> float | None:
        """End of `activeDeadlineSeconds`, on the monotonic clock."""
        seconds = self.pod["spec"].get("activeDeadlineSeconds")
        if seconds is None or self._ending:
            return None
        passed = (datetime.now(UTC) - self._started_at).total_seconds()
        return time.monotonic() + float(seconds) - passed

    def _start_what_is_due(self, now: float) -> None:
        for slot in self._init_slots:
            if slot.is_sidecar or not slot.status.succeeded:
                self._start([slot], now)
            if not slot.status.initialized:
                return
        self._start(self._slots, now)

    def _start(self, slots: list[ContainerSlot], now: float) -> None:
        due = [slot for slot in slots if slot.is_due(now)]
        volumes = self._mounted_volumes() if due else None
        if volumes is None:
            return
        for slot in due:
            if not slot.start(volumes):
                self._retry_at = time.monotonic() + _RETRY_SECONDS

    def _mounted_volumes(self) -> dict[str, Path] | None:
        """Host paths of the volumes; None if they cannot be mounted yet."""
        if self._volumes is not None:
            return self._volumes
        folder = pod_folder(self._tools.settings, self.pod)
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            own = volume_folder(self._tools.settings, self.pod)
            own.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._volumes = prepare_volumes(self.pod, own, self._tools.reader)
        except (VolumeError, OSError, RequestRefused, ApiUnreachable) as error:
            if self._mount_error != str(error):
                self._tools.events.warning(self.pod, "FailedMount", f"MountVolume.SetUp failed: {error}")
            self._mount_error = str(error)
            self._retry_at = time.monotonic() + _RETRY_SECONDS
        return self._volumes

    def _end(self, grace_seconds: float, reason: str = "", message: str = "") -> None:
        """End all containers within `grace_seconds`. The first reason stays."""
        if not self._ending:
            self._ending, self._reason, self._message = True, reason, message
            for slot in self._all_slots():
                if not slot.is_sidecar or grace_seconds <= 0:  # the others end first
                    slot.terminate(immediately=grace_seconds <= 0)
        kill_at = time.monotonic() + grace_seconds
        self._kill_at = kill_at if self._kill_at is None else min(self._kill_at, kill_at)

    def _termination_grace(self) -> float:
        grace = self.pod["spec"].get("terminationGracePeriodSeconds")
        return _DEFAULT_GRACE_SECONDS if grace is None else float(grace)

    def _conclude(self) -> bool:
        """Report, and after the end clean up. Whether the pod is done with."""
        runs = any(slot.process is not None for slot in self._all_slots())
        if self._ending and not runs:
            self._kill_at = None
            for slot in self._all_slots():
                slot.abandon()
        state = self._state()
        over = not runs and (self._ending or phase_of(state) in ("Succeeded", "Failed"))
        if self.removed:
            return over
        reported = (self._ending and runs) or self._report(state)
        if over and reported and self.pod["metadata"].get("deletionTimestamp"):
            reported = self._delete_object()
        if over and not reported and not self._node_stops:
            self._retry_at = time.monotonic() + _RETRY_SECONDS
            return False
        return over

    def _report(self, state: PodState) -> bool:
        """Bring the pod's status up to date. Whether the server has it."""
        status = pod_status(state, self._reported, datetime.now(UTC))
        if status == self._sent:
            return True
        try:
            self._tools.api.patch(self._path("/status"), strategic_patch(self.uid, status, self._reported))
        except RequestRefused as error:
            if error.status in (404, 409):  # deleted, or another pod of that name
                self.removed = True
                self._end(0)
                return True
            _LOG.warning("status of pod %s is refused: %s", self.pod["metadata"]["name"], error)
        except ApiUnreachable as error:
            _LOG.info("status of pod %s has to wait: %s", self.pod["metadata"]["name"], error)
        else:
            self._sent, self._reported = status, by_type(status)
            return True
        self._retry_at = time.monotonic() + _RETRY_SECONDS
        return False

    def _delete_object(self) -> bool:
        try:
            self._tools.api.delete(self._path(), final_delete_options(self.uid))
        except (RequestRefused, ApiUnreachable) as error:
            _LOG.info("deletion of pod %s has to wait: %s", self.pod["metadata"]["name"], error)
            return False
        return True

    def _state(self) -> PodState:
        return PodState(
            uid=self.uid,
            generation=self.pod["metadata"].get("generation") or 1,
            restart_policy=self._policy,
            started_at=self._started_at,
            init_containers=[slot.status for slot in self._init_slots],
            containers=[slot.status for slot in self._slots],
            ending=self._ending,
            reason=self._reason,
            message=self._message,
        )

    def _all_slots(self) -> list[ContainerSlot]:
        return [*self._init_slots, *self._slots]

    def _path(self, suffix: str = "") -> str:
        metadata = self.pod["metadata"]
        return f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}{suffix}"


def final_delete_options(uid: str) -> Mapping[str, Any]:
    """The kubelet's final deletion of a pod: exactly this object, without a grace period."""
    return {
        "apiVersion": "v1",
        "kind": "DeleteOptions",
        "gracePeriodSeconds": 0,
        "preconditions": {"uid": uid},
    }
