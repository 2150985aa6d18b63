"""Reports what happens to a pod as Events, sent in a thread of their own."""

from __future__ import annotations

import contextlib
import queue
import threading
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kubetwin.client import ApiClient, ApiUnreachable, RequestRefused
from kubetwin.model import times


class EventRecorder:
    """Sends Events in the order in which they are recorded. One that cannot be sent is dropped."""

    def __init__(self, api: ApiClient, node_name: str) -> None:
        self._api = api
        self._node_name = node_name
        self._queue: queue.SimpleQueue[tuple[str, dict[str, Any]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="node-events", daemon=True)

    def start(self) -> None:
        """Begin to send."""
        self._thread.start()

    def stop(self) -> None:
        """Send the recorded events, then stop."""
        self._queue.put(None)
        self._thread.join(timeout=2)

    def normal(self, pod: Mapping[str, Any], reason: str, message: str, container: str = "") -> None:
        """Record that something went its way."""
        self._record(pod, "Normal", reason, message, container)

    def warning(self, pod: Mapping[str, Any], reason: str, message: str, container: str = "") -> None:
        """Record that something did not go as it should."""
        self._record(pod, "Warning", reason, message, container)

    def _record(self, pod: Mapping[str, Any], kind: str, reason: str, message: str, container: str) -> None:
        metadata = pod["metadata"]
        event = pod_event(pod, self._node_name, kind, reason, message, container, datetime.now(UTC))
        self._queue.put((f"/api/v1/namespaces/{metadata['namespace']}/events", event))

    def _run(self) -> None:
        while (recorded := self._queue.get()) is not None:
            with contextlib.suppress(RequestRefused, ApiUnreachable):
                self._api.create(*recorded)


def pod_event(
    pod: Mapping[str, Any],
    node_name: str,
    kind: str,
    reason: str,
    message: str,
    container: str,
    now: datetime,
) -> dict[str, Any]:
    """An Event about a pod, or about one of its containers."""
    metadata = pod["metadata"]
    section = "initContainers" if _is_init(pod, container) else "containers"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}", "namespace": metadata["namespace"]},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
            **({"fieldPath": f"spec.{section}{{{container}}}"} if container else {}),
        },
        "type": kind,
        "reason": reason,
        "message": message,
        "count": 1,
        "firstTimestamp": times.seconds(now),
        "lastTimestamp": times.seconds(now),
        "source": {"component": "kubelet", "host": node_name},
        "reportingComponent": "kubelet",
        "reportingInstance": node_name,
    }


def _is_init(pod: Mapping[str, Any], container: str) -> bool:
    return any(entry["name"] == container for entry in (pod.get("spec") or {}).get("initContainers") or [])
