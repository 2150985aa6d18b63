"""Events that controllers write about other objects."""

from __future__ import annotations

import time

from kubetwin.model import times
from kubetwin.model.errors import ApiError, Object
from kubetwin.state.cluster import Cluster

_REMEMBERED = 4096
"""Number of events whose repetition is counted (client-go, tools/record: maxLruCacheEntries)."""


class EventRecorder:
    """Writes Events; the same one again only raises the count of the first."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._resource = cluster.registry.by_key("events")
        self._names: dict[tuple[str, str, str, str], tuple[str, str]] = {}

    def record(self, about: Object, kind: str, reason: str, message: str, component: str) -> None:
        """Write one event.

        Args:
            about: The object that the event concerns.
            kind: Normal or Warning.
            reason: One word in CamelCase.
            message: A sentence.
            component: The controller that reports it.
        """
        metadata = about["metadata"]
        key = (metadata["uid"], reason, message, component)
        if key in self._names and self._repeat(*self._names[key]):
            return
        namespace = metadata.get("namespace") or "default"
        name = f"{metadata['name']}.{time.time_ns():x}"
        now = times.seconds(times.now())
        event = {
            "metadata": {"name": name},
            "involvedObject": _reference(about),
            "reason": reason,
            "message": message,
            "source": {"component": component},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
            "type": kind,
            "eventTime": None,
            "reportingComponent": component,
            "reportingInstance": "",
        }
        try:
            self._cluster.create(self._resource, namespace, event)
        except ApiError:
            return  # the namespace is being deleted and takes no more events
        self._names[key] = (namespace, name)
        if len(self._names) > _REMEMBERED:
            del self._names[next(iter(self._names))]

    def _repeat(self, namespace: str, name: str) -> bool:
        def count(event: Object) -> None:
            event["count"] = event.get("count", 1) + 1
            event["lastTimestamp"] = times.seconds(times.now())

        return self._cluster.modify(self._resource, namespace, name, count) is not None


def _reference(about: Object) -> Object:
    metadata = about["metadata"]
    reference = {
        "kind": about["kind"],
        "apiVersion": about["apiVersion"],
        "name": metadata["name"],
        "uid": metadata["uid"],
        "resourceVersion": metadata.get("resourceVersion", ""),
    }
    if metadata.get("namespace"):
        reference["namespace"] = metadata["namespace"]
    return reference
