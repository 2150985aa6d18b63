"""A cluster in memory that lists, watches and serves logs as a Kubernetes API server does, faults included."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from tests.waiting import PATIENCE
from trainflow.errors import ClusterUnavailable, TrainflowError
from trainflow.kubernetes.faults import refusal


class FakeStream:
    """Lines until None; an exception in between is raised."""

    def __init__(self) -> None:
        self.lines: queue.Queue[str | Exception | None] = queue.Queue()

    def __iter__(self) -> Iterator[str]:
        while (line := self.lines.get(timeout=PATIENCE)) is not None:
            if isinstance(line, Exception):
                raise line
            yield line

    def close(self) -> None:
        self.lines.put(ClusterUnavailable("closed"))


class FakeLog:
    """The log of a container: stamped lines, and whether the container has ended."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.ended = False
        self.break_after: list[int] = []
        """Lines after which each successive connection breaks."""
        self.cut_mid_line = False
        self.gone = False
        self.gone_after: int | None = None
        """Times that the log can be opened before its pod is gone."""
        self.opened_since: list[str | None] = []
        self.grew = threading.Condition()

    def write(self, *stamped: str) -> None:
        with self.grew:
            self.lines += stamped
            self.grew.notify_all()

    def end(self) -> None:
        with self.grew:
            self.ended = True
            self.grew.notify_all()

    def open(self, since: str | None, follow: bool) -> FakeLogStream:
        if self.gone or len(self.opened_since) == self.gone_after:
            raise refusal(404, "Not Found", None)
        self.opened_since.append(since)
        return FakeLogStream(self, since, follow, self.break_after.pop(0) if self.break_after else None)


class FakeLogStream:
    def __init__(self, log: FakeLog, since: str | None, follow: bool, break_after: int | None) -> None:
        self._log, self._since, self._follow, self._break_after = log, since, follow, break_after
        self._closed = False

    def __iter__(self) -> Iterator[str]:
        place = served = 0
        while True:
            with self._log.grew:
                while place == len(self._log.lines):
                    if not self._follow or self._log.ended:
                        return
                    if self._closed:
                        raise ClusterUnavailable("closed")
                    self._log.grew.wait(timeout=PATIENCE)
                line = self._log.lines[place]
            place += 1
            if self._since is not None and line[:19] < self._since[:19]:
                continue
            if served == self._break_after:
                if self._log.cut_mid_line:
                    yield line[: len(line) // 2]
                    return
                raise ClusterUnavailable("connection reset")
            served += 1
            yield line

    def close(self) -> None:
        with self._log.grew:
            self._closed = True
            self._log.grew.notify_all()


class FakeCluster:
    """`PodSource` of pods that a test puts there."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.logs: dict[str, FakeLog] = {}
        self.watches: queue.Queue[FakeStream] = queue.Queue()
        self.version = 100
        self.refusals: list[TrainflowError] = []
        self.selectors: list[str] = []
        self.on_list: Callable[[], None] = lambda: None

    def list_pods(self, selector: str) -> Mapping[str, Any]:
        self.selectors.append(selector)
        if self.refusals:
            raise self.refusals.pop(0)
        self.on_list()
        return {"metadata": {"resourceVersion": str(self.version)}, "items": list(self.pods.values())}

    def watch_pods(self, selector: str, resource_version: str) -> FakeStream:
        stream = FakeStream()
        self.watches.put(stream)
        return stream

    def pod_log(self, pod: str, container: str | None, *, since: str | None, follow: bool) -> FakeLogStream:
        return self.logs.setdefault(pod, FakeLog()).open(since, follow)


def event(kind: str, manifest: Mapping[str, Any], version: int = 101) -> str:
    """A watch event as a line."""
    body = {**manifest, "metadata": {**manifest.get("metadata", {}), "resourceVersion": str(version)}}
    return json.dumps({"type": kind, "object": body}) + "\n"


def running_pod(name: str, *, stage: str = "training", index: int = 0) -> dict[str, Any]:
    """A pod whose container runs."""
    return {
        "metadata": {
            "name": name,
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-21T09:30:00Z",
            "labels": {
                "trainflow/stage": stage,
                "trainflow/attempt": "1",
                "batch.kubernetes.io/job-completion-index": str(index),
            },
        },
        "spec": {"nodeName": "node-0", "containers": [{"name": "main"}]},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "main", "state": {"running": {"startedAt": "2026-11-21T09:30:01Z"}}}],
        },
    }


def finished_pod(name: str, *, exit_code: int = 0, stage: str = "training", index: int = 0) -> dict[str, Any]:
    """The same pod after its container has ended."""
    pod = running_pod(name, stage=stage, index=index)
    ended = {
        "startedAt": "2026-11-21T09:30:01Z",
        "finishedAt": "2026-11-21T09:31:01Z",
        "exitCode": exit_code,
        "reason": "Error" if exit_code else "Completed",
    }
    phase = "Failed" if exit_code else "Succeeded"
    pod["status"] = {"phase": phase, "containerStatuses": [{"name": "main", "state": {"terminated": ended}}]}
    return pod
