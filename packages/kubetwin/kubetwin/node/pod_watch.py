"""Follows the pods that are bound to a node, across failures of the connection."""

from __future__ import annotations

import logging
import threading
import time
from typing import Any, Protocol

from kubetwin.background import Worker, report, surviving
from kubetwin.client import ApiClient, ApiUnreachable, RequestRefused, Watch

_LOG = logging.getLogger(__name__)

_PODS = "/api/v1/pods"
_WATCH_SECONDS = "240"
"""Seconds until the server ends a watch; the next one continues where it stopped."""

_FIRST_DELAY_SECONDS = 0.2
_MAX_DELAY_SECONDS = 5.0
_SHORT_WATCH_SECONDS = 1.0
"""A watch that ends sooner has not ended in the ordinary way: the next one waits."""


class PodObserver(Protocol):
    """Receives the changes of the node's pods."""

    def pods_listed(self, pods: list[dict[str, Any]]) -> None:
        """These are all the pods that there are."""

    def pod_changed(self, pod: dict[str, Any]) -> None:
        """A pod is new or has changed."""

    def pod_deleted(self, pod: dict[str, Any]) -> None:
        """A pod's object was deleted."""

    def reconnected(self) -> None:
        """The server answers again after it did not. Called before the pods are listed."""


class _ListAgain(Exception):
    """The server cannot go on from the last resource version."""


class PodWatch:
    """A thread that lists and watches the pods of one node, or of all.

    Args:
        api: The cluster.
        node_name: The node; None for all nodes.
        observer: Receives every change, in order and from one thread.
    """

    def __init__(self, api: ApiClient, node_name: str | None, observer: PodObserver) -> None:
        self._api = api
        self._selector = f"spec.nodeName={node_name}" if node_name else ""
        self._observer = observer
        self._stopping = threading.Event()
        self._watch: Watch | None = None
        self._delay = _FIRST_DELAY_SECONDS
        self._thread = Worker(self._run, name="node-watch")

    def start(self) -> None:
        """Begin to watch."""
        self._thread.start()

    def stop(self) -> None:
        """Watch no more."""
        self._stopping.set()
        watch = self._watch
        if watch is not None:
            watch.close()
        self._thread.join(timeout=2)

    def _run(self) -> None:
        lost = False
        while not self._stopping.is_set():
            try:
                if lost:
                    self._observer.reconnected()
                version = self._list()
                lost, self._delay = False, _FIRST_DELAY_SECONDS
                while not self._stopping.is_set():
                    version = self._follow(version)
            except _ListAgain:
                continue
            except (RequestRefused, ApiUnreachable) as error:
                lost = True
                _LOG.info("watch of %s is interrupted: %s", self._selector, error)
                self._wait()
            except Exception as error:  # noqa: BLE001 (reported; without the watch no pod would start or end any more)
                report(f"watch of pods {self._selector}", error)
                self._wait()

    def _list(self) -> str:
        listing = self._api.get(_PODS, fieldSelector=self._selector)
        self._observer.pods_listed(listing.get("items") or [])
        return str((listing.get("metadata") or {}).get("resourceVersion") or "")

    def _follow(self, version: str) -> str:
        """Watch once, and return the resource version to continue from."""
        began = time.monotonic()
        self._watch = self._api.watch(
            _PODS,
            fieldSelector=self._selector,
            resourceVersion=version,
            allowWatchBookmarks="true",
            timeoutSeconds=_WATCH_SECONDS,
        )
        if self._stopping.is_set():  # `stop` may have come before this watch was there to be ended
            self._watch.close()
        for event in self._watch:
            if event.get("type") == "ERROR":
                raise _ListAgain
            pod = event["object"]
            version = pod["metadata"]["resourceVersion"]
            surviving(self._tell, event["type"], pod, name="a change of a pod")
        if time.monotonic() - began < _SHORT_WATCH_SECONDS:
            self._wait()
        return version

    def _tell(self, kind: str, pod: dict[str, Any]) -> None:
        if kind in ("ADDED", "MODIFIED"):
            self._observer.pod_changed(pod)
        elif kind == "DELETED":
            self._observer.pod_deleted(pod)

    def _wait(self) -> None:
        self._stopping.wait(self._delay)
        self._delay = min(self._delay * 2, _MAX_DELAY_SECONDS)
