"""Catalogue of the logs of a node's containers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubetwin.model.names import namespaced_name
from kubetwin.node.log_writer import ContainerLog


class KubeletRefusal(Exception):
    """A request for a log or a stream cannot be answered; the text is the kubelet's.

    Attributes:
        status: HTTP status code that the kubelet answers with.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Logs:
    """The logs of the pods that are bound to a node, finished or still written.

    A pod's folder holds `<container>.log` and, after a restart, `<container>.previous.log`.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: dict[tuple[str, str], Path] = {}
        self._live: dict[Path, ContainerLog] = {}
        self._waiting: dict[Path, str] = {}

    def remember(self, pod: Mapping[str, Any], folder: Path) -> None:
        """The pod is bound to the node; its logs are in `folder`."""
        with self._lock:
            self._folders[namespaced_name(pod)] = folder

    def forget(self, pod: Mapping[str, Any], folder: Path) -> None:
        """Remove a deleted pod, unless another pod has its name by now."""
        with self._lock:
            if self._folders.get(namespaced_name(pod)) == folder:
                del self._folders[namespaced_name(pod)]
            for path in [path for path in self._waiting if path.parent == folder]:
                del self._waiting[path]

    def waits(self, folder: Path, container: str, reason: str) -> None:
        """The container waits for its next run."""
        with self._lock:
            self._waiting[folder / f"{container}.log"] = reason

    def open(self, folder: Path, container: str) -> ContainerLog:
        """Begin the log of a container's next run; the one before is kept as the previous."""
        path = folder / f"{container}.log"
        with self._lock:
            self._waiting.pop(path, None)
            if path.exists():
                path.rename(folder / f"{container}.previous.log")
            log = self._live[path] = ContainerLog(path)
        return log

    def close(self, log: ContainerLog) -> None:
        """The run has ended."""
        log.close()
        with self._lock:
            self._live.pop(log.path, None)

    def find(self, namespace: str, pod: str, container: str, *, previous: bool) -> tuple[Path, ContainerLog | None]:
        """The stored log of a container's latest run, and its writer if it is still written.

        Args:
            namespace: Namespace of the pod.
            pod: Name of the pod.
            container: Name of the container.
            previous: Whether to read the log of the last run that has ended.

        Raises:
            KubeletRefusal: If the log does not exist.
        """
        with self._lock:
            folder = self._folders.get((namespace, pod))
            if folder is None:
                raise KubeletRefusal(404, f'pod "{pod}" in namespace "{namespace}" is not on this node')
            path = folder / f"{container}.log"
            if previous and self._waiting.get(path) != "CrashLoopBackOff":
                path = folder / f"{container}.previous.log"
            if path.exists():
                return path, self._live.get(path)
            if previous:
                raise KubeletRefusal(400, f'previous terminated container "{container}" in pod "{pod}" not found')
            reason = self._waiting.get(path)
        if reason is None:
            raise KubeletRefusal(400, f'container "{container}" in pod "{pod}" is not available')
        raise KubeletRefusal(400, f'container "{container}" in pod "{pod}" is waiting to start: {reason}')
