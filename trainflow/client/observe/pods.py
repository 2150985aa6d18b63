"""The pods of a run: each as it was last seen, also after its deletion."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from trainflow.background import Worker, described
from trainflow.client.observe.cluster import LineStream, PodSource
from trainflow.deployment.kubernetes_names import RUN_LABEL
from trainflow.errors import ClusterUnavailable, TrainflowError
from trainflow.kubernetes.faults import Expired, refusal
from trainflow.observed.pod import Pod, deleted_pod, read_pod

RETRY_SECONDS = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Pauses between tries at a cluster that does not answer; the last one repeats."""


class PodWatcher:
    """Keeps a view of every pod of a run through one list and one watch."""

    def __init__(self, source: PodSource, run_id: str, on_change: Callable[[Pod], None]) -> None:
        """Prepares the watch.

        Args:
            source: The cluster.
            run_id: Selects the pods by their label.
            on_change: Called with each pod that is new or has changed, from the watch's own thread.
        """
        self._source = source
        self._selector = f"{RUN_LABEL}={run_id}"
        self._on_change = on_change
        self._views: dict[str, Pod] = {}
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._stream: LineStream | None = None
        self._thread = Worker(self._run, name="pod-watch", on_error=self._note_error)
        self.trouble: str | None = None
        """Reason why the cluster cannot be asked at the moment."""

    def start(self) -> None:
        """Begins to watch."""
        self._thread.start()

    def pods(self) -> tuple[Pod, ...]:
        """Every pod that was ever seen, in the order of their appearance."""
        with self._lock:
            return tuple(self._views.values())

    def read(self) -> None:
        """Lists once, for a watch that is never started; trouble is noted, not raised."""
        try:
            self._list()
        except TrainflowError as unreachable:
            self.trouble = str(unreachable)

    def stop(self) -> None:
        """Lists once more, then ends the watch."""
        self._stopping.set()
        if self._stream is not None:
            self._stream.close()
        if self._thread.is_alive():
            self._thread.join(timeout=5)
        self.read()

    def _run(self) -> None:
        failures = 0
        version: str | None = None
        while not self._stopping.is_set():
            try:
                version = self._watch(version or self._list())
                failures, self.trouble = 0, None
            except TrainflowError as broken:
                # What came after an expired version is forgotten. Listing anew is right after any other failure too.
                version = None
                if not isinstance(broken, Expired) and not self._stopping.is_set():
                    self.trouble = str(broken)
                    self._stopping.wait(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
                    failures += 1
            except Exception as error:  # noqa: BLE001 (shown as trouble; the next answer may be read)
                version = None
                self._note_error(error)
                self._stopping.wait(RETRY_SECONDS[min(failures, len(RETRY_SECONDS) - 1)])
                failures += 1

    def _note_error(self, error: BaseException) -> None:
        self.trouble = f"The pods cannot be read ({described(error)})."

    def _list(self) -> str:
        answer = self._source.list_pods(self._selector)
        present = [read_pod(manifest) for manifest in answer.get("items") or []]
        uids = {pod.uid for pod in present}
        for pod in present:
            self._keep(pod)
        for pod in self.pods():
            if pod.uid not in uids and not pod.deleted:
                self._keep(deleted_pod(pod, datetime.now(UTC)))
        return str(answer["metadata"]["resourceVersion"])

    def _watch(self, version: str) -> str:
        """Follows the changes until the server ends the watch; returns the version to go on from."""
        self._stream = self._source.watch_pods(self._selector, version)
        if self._stopping.is_set():
            self._stream.close()  # stop() came between the two and met no stream
        for line in self._stream:
            if self._stopping.is_set():
                break
            event = _watch_event(line)
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] in ("ADDED", "MODIFIED"):
                self._keep(read_pod(event["object"]))
            elif event["type"] == "DELETED":
                self._keep(deleted_pod(read_pod(event["object"]), datetime.now(UTC)))
        return version

    def _keep(self, pod: Pod) -> None:
        with self._lock:
            known = self._views.get(pod.uid)
            if known == pod or (known is not None and known.deleted):
                return
            self._views[pod.uid] = pod
        self._on_change(pod)


def _watch_event(line: str) -> dict[str, Any]:
    try:
        event: dict[str, Any] = json.loads(line)
    except ValueError:
        raise ClusterUnavailable("The watch broke off in the middle of an event.") from None
    if event.get("type") == "ERROR":
        status = event.get("object") or {}
        raise refusal(int(status.get("code") or 0), "The watch ended", json.dumps(status))
    return event
