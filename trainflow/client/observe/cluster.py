"""The Kubernetes API as the observer needs it: list, watch and logs, as plain dictionaries and lines.

The official client reads the kubeconfig and keeps its credentials fresh (exec plugins as EKS uses them included); its
generated methods are passed over because their log call knows no `sinceTime`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from kubernetes import client, config
from urllib3.exceptions import HTTPError

from trainflow.kubernetes.connection import kubernetes_settings

CONNECT_SECONDS = 5.0
"""Time to connect; a cluster that does not answer is asked again."""

SILENCE_SECONDS = 60.0
"""Time without a byte after which a stream counts as broken and is opened again where it was."""

MAX_CONNECTIONS = 64
"""Streams that may be open at once: one a followed pod, the watch, and room for single requests."""


class ClusterError(Exception):
    """The Kubernetes API did not give what was asked for.

    Attributes:
        status: HTTP status; None if there was no answer at all.
    """

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class LineStream(Protocol):
    """An answer that arrives line by line."""

    def __iter__(self) -> Iterator[str]:
        """Lines with their line break; only the very last may lack it.

        Raises:
            ClusterError: If the connection breaks.
        """

    def close(self) -> None:
        """Ends the stream, also while another thread waits for its next line."""


class PodSource(Protocol):
    """Where the observer learns about pods."""

    def list_pods(self, selector: str) -> Mapping[str, Any]:
        """A PodList."""

    def watch_pods(self, selector: str, resource_version: str) -> LineStream:
        """Watch events, one JSON object a line."""

    def pod_log(self, pod: str, container: str | None, *, since: str | None, follow: bool) -> LineStream:
        """Lines of the container's log, each behind its time stamp, from the second `since` on."""


class KubernetesPods:
    """`PodSource` of a real API server (the twin's included)."""

    def __init__(self, kubeconfig: Path, namespace: str) -> None:
        """Reads the kubeconfig; makes no request yet.

        Raises:
            ClusterError: If the kubeconfig cannot be used.
        """
        try:
            configuration = kubernetes_settings(kubeconfig)
        except (config.ConfigException, OSError) as unusable:
            raise ClusterError(f"The kubeconfig '{kubeconfig}' cannot be used: {unusable}") from None
        configuration.connection_pool_maxsize = MAX_CONNECTIONS
        configuration.retries = False
        self._api = client.ApiClient(configuration)
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    def list_pods(self, selector: str) -> Mapping[str, Any]:
        """See `PodSource`."""
        response = self._open(self._pods, {"labelSelector": selector}, read_seconds=30.0)
        try:
            answer: dict[str, Any] = json.loads(response.read())
        except (HTTPError, OSError, ValueError) as broken:
            raise ClusterError(f"The Kubernetes API's list of pods broke off: {broken}") from broken
        return answer

    def watch_pods(self, selector: str, resource_version: str) -> LineStream:
        """See `PodSource`. The server ends the watch after a while, so that a lost one is noticed."""
        query = {
            "labelSelector": selector,
            "resourceVersion": resource_version,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(int(SILENCE_SECONDS) - 10),
        }
        return HttpLines(self._open(self._pods, query, read_seconds=SILENCE_SECONDS))

    def pod_log(self, pod: str, container: str | None, *, since: str | None, follow: bool) -> LineStream:
        """See `PodSource`."""
        query = {"timestamps": "true", "follow": "true" if follow else "false"}
        if container:
            query["container"] = container
        if since:
            query["sinceTime"] = since
        return HttpLines(self._open(f"{self._pods}/{pod}/log", query, read_seconds=SILENCE_SECONDS))

    def _open(self, path: str, query: Mapping[str, str], *, read_seconds: float) -> Any:
        try:
            return self._api.call_api(
                path,
                "GET",
                query_params=list(query.items()),
                header_params={"Accept": "application/json, */*"},
                auth_settings=["BearerToken"],
                _preload_content=False,
                _return_http_data_only=True,
                _request_timeout=(CONNECT_SECONDS, read_seconds),
            )
        except client.ApiException as refused:
            raise ClusterError(f"The Kubernetes API answered {refused.status}.", status=refused.status) from None
        except (HTTPError, OSError) as unreachable:
            raise ClusterError(f"The Kubernetes API does not answer: {unreachable}") from unreachable


class HttpLines:
    """`LineStream` of a urllib3 response that was opened without reading it."""

    def __init__(self, response: Any) -> None:
        self._response = response

    def __iter__(self) -> Iterator[str]:
        """See `LineStream`. Only a line feed ends a line: progress bars write carriage returns."""
        rest = b""
        try:
            for chunk in self._response.stream(amt=65536):
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    yield line.decode("utf-8", errors="replace") + "\n"
        except (HTTPError, OSError, ValueError, AttributeError) as broken:
            # Closing it from another thread surfaces as any of these, a broken connection as the first two.
            raise ClusterError(f"The stream from the Kubernetes API broke off: {broken}") from broken
        finally:
            self._response.close()
        if rest:
            yield rest.decode("utf-8", errors="replace")

    def close(self) -> None:
        """See `LineStream`."""
        # Each of these says that it has ended by itself meanwhile.
        with suppress(OSError, ValueError, RuntimeError, NotImplementedError):
            self._response.shutdown()
