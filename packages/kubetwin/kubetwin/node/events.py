"""Reports what happens to a pod as Events, sent in a thread of their own."""

from __future__ import annotations

import contextlib
import queue
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from kubetwin.background import Worker, surviving
from kubetwin.client import ApiClient, ApiUnreachable, RequestRefused
from kubetwin.model import times

_REMEMBERED = 4096
"""Most events that are counted up when they are repeated (client-go's cache has as many)."""


class EventRecorder:
    """Sends Events in the order of their recording. One that cannot be sent is dropped."""

    def __init__(self, api: ApiClient, node_name: str) -> None:
        self._api = api
        self._node_name = node_name
        self._queue: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self._sent: dict[tuple[str, ...], tuple[str, int]] = {}
        self._thread = Worker(self._run, name="node-events")

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
        self._queue.put(pod_event(pod, self._node_name, kind, reason, message, container, datetime.now(UTC)))

    def _run(self) -> None:
        while (event := self._queue.get()) is not None:
            surviving(self._send_or_drop, event, name="events of pods")

    def _send_or_drop(self, event: dict[str, Any]) -> None:
        with contextlib.suppress(RequestRefused, ApiUnreachable):
            self._send(event)

    def _send(self, event: dict[str, Any]) -> None:
        """Create an event, or count it up if the same was sent before (client-go: EventCorrelator)."""
        path, key = f"/api/v1/namespaces/{event['metadata']['namespace']}/events", _identity(event)
        before = self._sent.pop(key, None)
        if before is not None:
            name, count = before
            again = {"count": count + 1, "lastTimestamp": event["lastTimestamp"]}
            try:
                self._api.patch(f"{path}/{name}", again)
            except RequestRefused as error:
                if error.status != 404:  # its time to live is over
                    raise
            else:
                self._sent[key] = (name, count + 1)
                return
        self._api.create(path, event)
        self._sent[key] = (event["metadata"]["name"], 1)
        if len(self._sent) > _REMEMBERED:
            del self._sent[next(iter(self._sent))]


def _identity(event: Mapping[str, Any]) -> tuple[str, ...]:
    involved = event["involvedObject"]
    return involved["uid"], involved.get("fieldPath", ""), event["type"], event["reason"], event["message"]


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
