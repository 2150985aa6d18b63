"""Probes and hooks of a container: commands in it, and requests to its ports."""

from __future__ import annotations

import http.client
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from kubetwin.background import Worker, later, report
from kubetwin.node import pod_network
from kubetwin.node.launching import Launch
from kubetwin.node.rewriting import LOOPBACK
from kubetwin.node.supervised import CannotStart, Streams, Supervised

_OUTPUT_BYTES = 10 * 1024
_SHOWN_BYTES = 1024


class ActionFailed(Exception):
    """A probe or a hook has failed; the text is the kubelet's."""


def perform(action: Mapping[str, Any], container: Mapping[str, Any], launch: Launch, timeout_seconds: float) -> None:
    """Run a command in a container, or ask one of its ports.

    Raises:
        ActionFailed: If it fails or takes longer than the time given.
    """
    if "exec" in action:
        _execute(action["exec"].get("command") or [], launch, timeout_seconds)
    elif "httpGet" in action:
        _get(action["httpGet"], container, launch.network, timeout_seconds)
    elif "tcpSocket" in action:
        _connect(action["tcpSocket"], container, launch.network, timeout_seconds)
    elif "sleep" in action:
        time.sleep(action["sleep"]["seconds"])
    else:
        raise ActionFailed("a process node knows exec, httpGet, tcpSocket and sleep only")


def _execute(command: list[str], launch: Launch, timeout_seconds: float) -> None:
    read, write = os.pipe()
    try:
        process = Supervised(
            [launch.rewrite(word) for word in command],
            launch.environment,
            launch.folder,
            Streams(output=write, error=write),
            launch.wall_words(),
        )
    except CannotStart as error:
        os.close(read)
        raise ActionFailed(str(error)) from error
    finally:
        os.close(write)
    limit = later(timeout_seconds, process.kill, name="time limit of a probe")
    limit.start()
    with os.fdopen(read, "rb") as output:
        shown = output.read(_OUTPUT_BYTES)
        while output.read(_OUTPUT_BYTES):
            pass
    code = process.wait()
    timed_out = limit.finished.is_set()
    limit.cancel()
    if timed_out:
        raise ActionFailed(f"command timed out: {' '.join(command)!r} timed out after {timeout_seconds:g}s")
    if code != 0:
        raise ActionFailed(shown[:_SHOWN_BYTES].decode(errors="replace"))


def _get(action: Mapping[str, Any], container: Mapping[str, Any], network: int | None, timeout_seconds: float) -> None:
    host, port = action.get("host") or LOOPBACK, _port(action.get("port"), container)
    path = f"/{(action.get('path') or '/').lstrip('/')}"
    headers = {each["name"]: each["value"] for each in action.get("httpHeaders") or []}
    connection = http.client.HTTPConnection(host, port, timeout=timeout_seconds)
    try:
        connection.sock = _reached(host, port, network, timeout_seconds, with_tls=action.get("scheme") == "HTTPS")
        connection.request("GET", path, headers={"User-Agent": "kube-probe/1.36", **headers})
        status = connection.getresponse().status
    except (OSError, http.client.HTTPException) as error:
        raise ActionFailed(f'Get "http://{host}:{port}{path}": {error}') from error
    finally:
        connection.close()
    if not 200 <= status < 400:
        raise ActionFailed(f"HTTP probe failed with statuscode: {status}")


def _connect(
    action: Mapping[str, Any], container: Mapping[str, Any], network: int | None, timeout_seconds: float
) -> None:
    host, port = action.get("host") or LOOPBACK, _port(action.get("port"), container)
    try:
        _reached(host, port, network, timeout_seconds).close()
    except OSError as error:
        raise ActionFailed(f"dial tcp {host}:{port}: {error}") from error


def _reached(
    host: str, port: int, network: int | None, timeout_seconds: float, *, with_tls: bool = False
) -> socket.socket:
    """A connection to a port of a container, or to another host that a probe names."""
    to_pod = network if host == LOOPBACK else None
    connection = pod_network.connect(to_pod, host, port, timeout_seconds=timeout_seconds)
    if not with_tls:
        return connection
    unchecked = ssl.create_default_context()
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE  # as a kubelet
    return unchecked.wrap_socket(connection, server_hostname=host)


def _port(wanted: Any, container: Mapping[str, Any]) -> int:
    """A port by its number, or by its name among the container's."""
    named = {port.get("name"): port["containerPort"] for port in container.get("ports") or []}
    if wanted in named:
        return int(named[wanted])
    if not str(wanted).isdigit():
        raise ActionFailed(f"couldn't find port: {wanted!r}")
    return int(wanted)


class Prober:
    """Probes one run of a container, until it is stopped.

    Args:
        container: The container's manifest.
        launch: The run's surroundings.
        on_change: Called, from another thread, when `started` or `ready` has changed.
        on_failure: Called with the kind of a probe and its text whenever a probe has failed.
        on_death: Called once with the kind of the failed probe (startup, liveness) that ends the container.

    Attributes:
        started: Whether the startup probe has succeeded, or is missing.
        ready: Whether the readiness probe has succeeded last, or is missing.
    """

    def __init__(
        self,
        container: Mapping[str, Any],
        launch: Launch,
        on_change: Callable[[], None],
        on_failure: Callable[[str, str], None],
        on_death: Callable[[str], None],
    ) -> None:
        self._container, self._launch = container, launch
        self._on_change, self._on_failure, self._on_death = on_change, on_failure, on_death
        self._probes = {
            kind: container[f"{kind}Probe"]
            for kind in ("startup", "liveness", "readiness")
            if container.get(f"{kind}Probe")
        }
        self._stopping = threading.Event()
        self.started = "startup" not in self._probes
        self.ready = self.started and "readiness" not in self._probes

    def start(self) -> None:
        """Begin to probe."""
        if self._probes:
            Worker(self._run, name="node-prober").start()

    def stop(self) -> None:
        """The run has ended."""
        self._stopping.set()

    def _run(self) -> None:
        if "startup" in self._probes:
            if not self._lasts("startup", until_success=True):
                return
            self.started, self.ready = True, "readiness" not in self._probes
            self._on_change()
        for kind in ("liveness", "readiness"):
            if kind in self._probes:
                Worker(self._lasts, kind, name=f"node-{kind}").start()

    def _lasts(self, kind: str, *, until_success: bool = False) -> bool:
        """Probe over and over; with `until_success`, return whether it has succeeded."""
        probe = self._probes[kind]
        in_row, last = 0, None
        wait = probe.get("initialDelaySeconds") or 0
        while not self._stopping.wait(wait):
            wait = probe.get("periodSeconds") or 10
            succeeded = self._try(kind, probe)
            in_row = in_row + 1 if succeeded == last else 1
            last = succeeded
            if in_row < (probe.get("successThreshold") or 1 if succeeded else probe.get("failureThreshold") or 3):
                continue
            if until_success and succeeded:
                return True
            if kind == "readiness":
                self._set_ready(succeeded)
            elif not succeeded:
                self._on_death(kind)
                return False
        return False

    def _try(self, kind: str, probe: Mapping[str, Any]) -> bool:
        try:
            perform(probe, self._container, self._launch, probe.get("timeoutSeconds") or 1)
        except ActionFailed as error:
            if not self._stopping.is_set():
                self._on_failure(kind, str(error))
            return False
        except Exception as error:  # noqa: BLE001 (reported; a probe that breaks has not succeeded)
            report(f"{kind} probe", error)
            return False
        return True

    def _set_ready(self, ready: bool) -> None:
        if self.ready != ready:
            self.ready = ready
            self._on_change()
