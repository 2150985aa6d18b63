"""Removes expired data of the API server: old changes that no watch needs, and events: after an hour, or earlier if
there are very many."""

from __future__ import annotations

import ctypes
import sys
import time
from collections.abc import Sequence
from datetime import timedelta

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.work import WorkQueue
from kubetwin.model import times
from kubetwin.model.errors import Object
from kubetwin.state.cluster import Cluster

EVENT_TTL = timedelta(hours=1)
"""kube-apiserver's --event-ttl."""

MOST_EVENTS = 5000
"""Most events that are kept. A real server keeps those of an hour however many there are; here they would be most of
what stays in memory after many pods.
"""

SECONDS_BETWEEN_ROUNDS = 15.0


class Expiry:
    """Runs every few seconds."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.queue: WorkQueue[str] = WorkQueue(self._round)
        self.queue.add_after("", SECONDS_BETWEEN_ROUNDS)

    def _round(self, _key: str) -> None:
        store = self.cluster.store
        for event in expired(store.objects("events")):
            store.remove("events", event)
        store.forget_old_changes(time.monotonic())
        if sys.platform == "linux":
            _return_free_memory()
        self.queue.add_after("", SECONDS_BETWEEN_ROUNDS)


def expired(events: Sequence[Object]) -> list[Object]:
    """The events that go: those whose time to live is over, and the oldest beyond the most that are kept."""
    over = [event for event in events if is_over(event)]
    surplus = len(events) - len(over) - MOST_EVENTS
    if surplus <= 0:
        return over
    return sorted(events, key=_last_seen)[: len(over) + surplus]


def is_over(event: Object) -> bool:
    """Whether the time to live of an event is over; it begins anew whenever the event is repeated."""
    return times.now() - times.parse(_last_seen(event)) > EVENT_TTL


def _last_seen(event: Object) -> str:
    last = event.get("lastTimestamp") or event.get("eventTime") or event["metadata"]["creationTimestamp"]
    return str(last)


def _return_free_memory() -> None:
    """Give memory that glibc has kept for later back to the machine."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    Expiry(cluster)
