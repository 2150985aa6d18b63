"""Source of the observer's knowledge about pods: a Kubernetes API, or a replacement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

from trainflow.errors import TrainflowError
from trainflow.kubernetes.api import KubernetesApi

READ_SECONDS = 30.0
"""Seconds without a byte before a list counts as lost."""


class LineStream(Protocol):
    """An answer that arrives line by line."""

    def __iter__(self) -> Iterator[str]:
        """Lines with their line feed; only the very last may lack it.

        Raises:
            TrainflowError: If the connection breaks.
        """

    def close(self) -> None:
        """Ends the stream, also while another thread waits for its next line."""


class PodSource(Protocol):
    """Pods of one namespace. Methods raise `TrainflowError` if they cannot be read, `NotFound` for a missing pod."""

    def list_pods(self, selector: str) -> Mapping[str, Any]:
        """A PodList."""

    def watch_pods(self, selector: str, resource_version: str) -> LineStream:
        """Watch events, one JSON object a line."""

    def pod_log(self, pod: str, container: str, *, since: str | None, follow: bool) -> LineStream:
        """Lines of the container's log, each behind its time stamp, from the second `since` on."""


class UnseenPods:
    """`PodSource` of a caller who may not see the pods: every question is answered by the reason."""

    def __init__(self, reason: TrainflowError) -> None:
        self._reason = reason

    def list_pods(self, selector: str) -> Mapping[str, Any]:
        """See `PodSource`."""
        del selector
        raise self._reason

    def watch_pods(self, selector: str, resource_version: str) -> LineStream:
        """See `PodSource`."""
        del selector, resource_version
        raise self._reason

    def pod_log(self, pod: str, container: str, *, since: str | None, follow: bool) -> LineStream:
        """See `PodSource`."""
        del pod, container, since, follow
        raise self._reason


class KubernetesPods:
    """`PodSource` of a real API server (the twin's included)."""

    def __init__(self, api: KubernetesApi, namespace: str) -> None:
        self._api = api
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    def list_pods(self, selector: str) -> Mapping[str, Any]:
        """See `PodSource`."""
        answer: dict[str, Any] = self._api.call("GET", self._pods, query=[("labelSelector", selector)])
        return answer

    def watch_pods(self, selector: str, resource_version: str) -> LineStream:
        """See `PodSource`."""
        return self._api.watch(self._pods, selector, resource_version).open()

    def pod_log(self, pod: str, container: str, *, since: str | None, follow: bool) -> LineStream:
        """See `PodSource`."""
        return self._api.log(f"{self._pods}/{pod}", container=container, since=since, follow=follow).open()
