"""A container's place in its pod: the runs that follow each other there, and the state between them."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kubetwin.background import Worker, later
from kubetwin.client import ApiClient, ApiUnreachable, RequestRefused
from kubetwin.model import times
from kubetwin.node.cluster_reader import ClusterReader
from kubetwin.node.container import ContainerProcess, Exit
from kubetwin.node.environment import ContainerConfigError
from kubetwin.node.events import EventRecorder
from kubetwin.node.launching import Launch, RuntimeSettings, pod_folder, prepare_launch
from kubetwin.node.log_catalogue import Logs
from kubetwin.node.log_writer import ContainerLog
from kubetwin.node.memory import MemoryWatch
from kubetwin.node.probes import ActionFailed, Prober, perform
from kubetwin.node.restarts import CrashBackoff, is_restarted
from kubetwin.node.running_containers import RunningContainer, RunningContainers
from kubetwin.node.status import ContainerStatus, Running, Terminated, Waiting
from kubetwin.node.supervised import CannotStart
from kubetwin.node.termination import termination_message
from kubetwin.node.volumes import VolumeError

_DEFAULT_GRACE_SECONDS = 30.0

_NO_LIMIT_SECONDS = threading.TIMEOUT_MAX
"""A hook that follows the start may take any time."""


@dataclass(frozen=True)
class NodeTools:
    """Parts of a node that the workers of its pods share, and their containers."""

    api: ApiClient
    reader: ClusterReader
    events: EventRecorder
    memory: MemoryWatch
    logs: Logs
    running: RunningContainers
    settings: RuntimeSettings


class ContainerSlot:
    """One container of one pod. Used only by the thread of the pod's worker.

    Args:
        container: Its manifest.
        pod: Its pod.
        tools: Parts of the node.
        on_exit: Called from another thread when a run has ended.
        on_probe: Called from another thread when a probe has changed what the container is.
        init: Whether it is an init container.

    Attributes:
        status: The container as it is now.
        process: Its current run; None between runs.
        start_at: Earliest time of its start, on the monotonic clock.
        is_sidecar: Whether it runs beside the others from before their start to after their end.
    """

    def __init__(
        self,
        container: Mapping[str, Any],
        pod: dict[str, Any],
        tools: NodeTools,
        on_exit: Callable[[ContainerSlot, Exit], None],
        on_probe: Callable[[], None],
        *,
        init: bool = False,
    ) -> None:
        self._container = container
        self._pod = pod
        self._tools = tools
        self._on_exit, self._on_probe = on_exit, on_probe
        self._policy = pod["spec"].get("restartPolicy") or "Always"
        self.is_sidecar = init and container.get("restartPolicy") == "Always"
        if self.is_sidecar:
            self._policy = "Always"
        elif init and self._policy == "Always":
            self._policy = "OnFailure"  # an init container has to succeed once
        reason = "ContainerCreating" if init or not pod["spec"].get("initContainers") else "PodInitializing"
        self.status = ContainerStatus(
            name=container["name"],
            image=container.get("image") or "",
            state=Waiting(reason),
            sidecar=self.is_sidecar,
        )
        self.process: ContainerProcess | None = None
        self._prober: Prober | None = None
        self._launch: Launch | None = None
        self.start_at = 0.0
        self._wants_start, self._pull_failed = True, False
        self._backoff = CrashBackoff()
        self._message_file = Path()
        self._folder = pod_folder(tools.settings, pod)
        tools.logs.waits(self._folder, self.status.name, reason)

    def restore(self) -> None:
        """Continue from the status that this node reported before its restart; its processes ended with it."""
        statuses = self._pod.get("status") or {}
        reported = [*(statuses.get("initContainerStatuses") or []), *(statuses.get("containerStatuses") or [])]
        before = next((status for status in reported if status["name"] == self.status.name), None)
        if before is None:
            return
        self.status = replace(self.status, restart_count=before.get("restartCount") or 0)
        state = before.get("state") or {}
        if "terminated" in state:
            self._conclude(_terminated(state["terminated"]), restart=True)
        elif "running" in state:
            self._conclude(_lost(times.parse(state["running"]["startedAt"])), restart=True)

    def is_due(self, now: float) -> bool:
        """Whether it is to be started now, if it is its turn."""
        return self._wants_start and self.start_at <= now

    def is_due_after(self, now: float) -> bool:
        """Whether it is to be started at a later time."""
        return self._wants_start and self.start_at > now

    def start(self, volumes: Mapping[str, Path]) -> bool:
        """Start the next run. False if that is not possible yet."""
        fault = self._tools.settings.image_fault(self._container, tried=self._pull_failed)
        if fault is not None:
            self._pull_failed = True
            return self._wait_for_start(fault.reason, fault.message)
        try:
            launch = prepare_launch(self._pod, self._container, volumes, self._tools.settings, self._tools.reader)
        except ContainerConfigError as error:
            return self._wait_for_start("CreateContainerConfigError", str(error))
        except (VolumeError, OSError) as error:
            return self._wait_for_start("CreateContainerError", str(error))
        except (RequestRefused, ApiUnreachable):
            return False
        self._wants_start = False
        self._message_file = launch.message_file
        if isinstance(self.status.state, Terminated):
            self.status = replace(self.status, last_termination=self.status.state)
        if self.status.last_termination is not None:
            self.status = replace(self.status, restart_count=self.status.restart_count + 1)
        self._run(launch)
        return True

    def ended(self, exit_: Exit, *, restart: bool) -> None:
        """Record the end of a run.

        Args:
            exit_: Exit of the run.
            restart: Whether the pod continues, so that the restart policy counts.
        """
        process = self.process
        if process is None:
            return
        self.process = None
        if self._prober is not None:
            self._prober.stop()
        self._tools.running.remove(self._pod, self.status.name, process)
        self._tools.memory.remove(process.supervisor_pid)
        self._tools.logs.close(process.log)
        message = termination_message(
            self._message_file,
            process.log.path,
            policy=self._container.get("terminationMessagePolicy") or "File",
            exit_code=exit_.code,
        )
        self._conclude(
            Terminated(
                exit_code=exit_.code,
                reason=exit_.reason,
                message=message,
                started_at=process.started_at,
                finished_at=exit_.finished_at,
            ),
            restart=restart,
        )

    def terminate(self, *, immediately: bool) -> None:
        """End the current run, and start no other."""
        self._wants_start = False
        if self.process is None:
            return
        self._event("Killing", f"Stopping container {self.status.name}")
        if immediately:
            self.process.kill()
        else:
            self._ask_to_end(self.process)

    def take_probes(self) -> None:
        """Report what the probes have found last."""
        if self._prober is not None and isinstance(self.status.state, Running):
            self.status = replace(self.status, started=self._prober.started, ready=self._prober.ready)

    def _ask_to_end(self, process: ContainerProcess) -> None:
        if hook := self._hook("preStop"):
            Worker(self._stop_after, hook, process, name="node-hook", on_error=lambda _: process.terminate()).start()
        else:
            process.terminate()

    def _hook(self, name: str) -> Mapping[str, Any] | None:
        found: Mapping[str, Any] | None = (self._container.get("lifecycle") or {}).get(name)
        return found

    def _stop_after(self, hook: Mapping[str, Any], process: ContainerProcess) -> None:
        """Run the hook, then ask the container to end; the pod's grace period goes on meanwhile."""
        try:
            if self._launch is not None:
                perform(hook, self._container, self._launch, _hook_seconds(self._pod))
        except ActionFailed as error:
            self._tools.events.warning(self._pod, "FailedPreStopHook", f"PreStopHook failed: {error}", self.status.name)
        process.terminate()

    def _begin_with(self, hook: Mapping[str, Any], launch: Launch, process: ContainerProcess) -> None:
        """Run the hook beside the container, and end the container if it fails. Events omit the output, which may hold
        a secret (kubelet, `startContainer`)."""
        try:
            perform(hook, self._container, launch, _NO_LIMIT_SECONDS)
        except ActionFailed:
            if self.process is process:
                self._tools.events.warning(self._pod, "FailedPostStartHook", "PostStartHook failed", self.status.name)
                self._event("Killing", "FailedPostStartHook")
                self._end(process)

    def _end(self, process: ContainerProcess) -> None:
        """Ask a run to end, and kill it after the pod's grace period."""
        self._ask_to_end(process)
        later(_hook_seconds(self._pod), process.kill, name="grace period of a container").start()

    def _start_probes(self, launch: Launch, process: ContainerProcess) -> None:
        def failed(kind: str, text: str) -> None:
            message = f"{kind.capitalize()} probe failed: {text}"
            self._tools.events.warning(self._pod, "Unhealthy", message, self.status.name)

        def died(kind: str) -> None:
            self._event("Killing", f"Container {self.status.name} failed {kind} probe, will be restarted")
            self._end(process)

        self._launch = launch
        self._prober = Prober(self._container, launch, self._on_probe, failed, died)
        self.take_probes()
        self._prober.start()

    def kill(self) -> None:
        """Kill the current run."""
        if self.process is not None:
            self.process.kill()

    def abandon(self) -> None:
        """End the wait of a container that has not started: its pod has ended."""
        if isinstance(self.status.state, Waiting):
            last = self.status.last_termination or _lost(datetime.now(UTC))
            self.status = replace(self.status, state=last, last_termination=None)

    def _run(self, launch: Launch) -> None:
        self._event("Pulled", f'Container image "{self.status.image}" already present on machine')
        log = self._tools.logs.open(self._folder, self.status.name)
        try:
            process = ContainerProcess(
                launch.argv,
                launch.environment,
                launch.folder,
                log,
                lambda exit_: self._on_exit(self, exit_),
                walls=launch.wall_words(),
            )
        except CannotStart as error:
            self._cannot_start(error, log)
            return
        self.process = process
        launch = launch.beside(process.pid)
        self._tools.running.add(self._pod, self.status.name, RunningContainer(launch, process))
        self.status = replace(self.status, state=Running(process.started_at))
        self._start_probes(launch, process)
        if launch.memory_limit_bytes is not None:
            self._tools.memory.add(process.supervisor_pid, launch.memory_limit_bytes, lambda: process.kill("OOMKilled"))
        self._event("Created", f"Created container: {self.status.name}")
        self._event("Started", f"Started container {self.status.name}")
        if hook := self._hook("postStart"):
            Worker(
                self._begin_with, hook, launch, process, name="node-hook", on_error=lambda _: self._end(process)
            ).start()
        with contextlib.suppress(OSError):
            (self._folder / f"{self.status.name}.pid").write_text(f"{process.pid}{os.linesep}")

    def _cannot_start(self, error: CannotStart, log: ContainerLog) -> None:
        self._tools.logs.close(log)
        self._tools.events.warning(self._pod, "Failed", f"Error: {error}", self.status.name)
        now = datetime.now(UTC)
        self._conclude(
            Terminated(
                exit_code=error.exit_code,
                reason="ContainerCannotRun",
                message=str(error),
                started_at=now,
                finished_at=now,
            ),
            restart=True,
        )

    def _conclude(self, end: Terminated, *, restart: bool) -> None:
        self.status = replace(self.status, state=end)
        self._wants_start = restart and is_restarted(self._policy, end.exit_code)
        if not self._wants_start:
            return
        delay = self._backoff.delay(end.started_at, end.finished_at).total_seconds()
        self.start_at = time.monotonic() + delay
        if delay > 0:
            name, metadata = self.status.name, self._pod["metadata"]
            pod = f"{metadata['name']}_{metadata['namespace']}({metadata['uid']})"
            text = f"back-off {delay:g}s restarting failed container={name} pod={pod}"
            self.status = replace(self.status, state=Waiting("CrashLoopBackOff", text), last_termination=end)
            self._tools.logs.waits(self._folder, name, "CrashLoopBackOff")
            self._tools.events.warning(
                self._pod, "BackOff", f"Back-off restarting failed container {name} in pod {pod}", name
            )

    def _wait_for_start(self, reason: str, message: str) -> bool:
        state = Waiting(reason, message)
        if self.status.state != state:
            self.status = replace(self.status, state=state)
            self._tools.logs.waits(self._folder, self.status.name, reason)
            self._record_event(reason, message)
        return False

    def _record_event(self, reason: str, message: str) -> None:
        """The kubelet's event of a waiting state of a container."""
        events = self._tools.events
        if reason == "ErrImagePull":
            image = self.status.image
            events.warning(self._pod, "Failed", f'Failed to pull image "{image}": {message}', self.status.name)
            events.warning(self._pod, "Failed", f"Error: {reason}", self.status.name)
        elif reason == "ImagePullBackOff":
            events.normal(self._pod, "BackOff", f'Back-off pulling image "{self.status.image}"', self.status.name)
        elif reason in ("InvalidImageName", "ErrImageNeverPull"):
            events.warning(self._pod, reason.replace("InvalidImageName", "InspectFailed"), message, self.status.name)
            events.warning(self._pod, "Failed", f"Error: {reason}", self.status.name)
        else:
            events.warning(self._pod, "Failed", f"Error: {message}", self.status.name)

    def _event(self, reason: str, message: str) -> None:
        self._tools.events.normal(self._pod, reason, message, self.status.name)


def _hook_seconds(pod: Mapping[str, Any]) -> float:
    """Time that a container has to end, hooks included."""
    grace = pod["spec"].get("terminationGracePeriodSeconds")
    return _DEFAULT_GRACE_SECONDS if grace is None else float(grace)


def _terminated(state: Mapping[str, Any]) -> Terminated:
    now = datetime.now(UTC)
    return Terminated(
        exit_code=state["exitCode"],
        reason=state.get("reason") or "",
        message=state.get("message") or "",
        started_at=times.parse(state["startedAt"]) if state.get("startedAt") else now,
        finished_at=times.parse(state["finishedAt"]) if state.get("finishedAt") else now,
    )


def _lost(started_at: datetime) -> Terminated:
    """The state of a container whose end is unknown (the kubelet's reason and message)."""
    return Terminated(
        exit_code=137,
        reason="ContainerStatusUnknown",
        message="The container could not be located when the pod was terminated",
        started_at=started_at,
        finished_at=datetime.now(UTC),
    )
