"""The containers of a node that run now, for commands that join them."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kubetwin.model.names import namespaced_name
from kubetwin.node.container import ContainerProcess
from kubetwin.node.launching import Launch


@dataclass(frozen=True)
class RunningContainer:
    """A container, with the surroundings that a further command in it shares."""

    launch: Launch
    process: ContainerProcess


class RunningContainers:
    """Containers by namespace, pod and name. Safe for use by several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[tuple[str, str, str], RunningContainer] = {}

    def add(self, pod: Mapping[str, Any], name: str, container: RunningContainer) -> None:
        """The container has started."""
        with self._lock:
            self._running[(*namespaced_name(pod), name)] = container

    def remove(self, pod: Mapping[str, Any], name: str, process: ContainerProcess) -> None:
        """The container has ended; a later one of that name stays."""
        key = (*namespaced_name(pod), name)
        with self._lock:
            if key in self._running and self._running[key].process is process:
                del self._running[key]

    def find(self, namespace: str, pod: str, name: str) -> RunningContainer | None:
        """A container, or None if it does not run."""
        with self._lock:
            return self._running.get((namespace, pod, name))
