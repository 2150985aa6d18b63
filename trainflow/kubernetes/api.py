"""Requests to the Kubernetes API: plain JSON, streams of lines, commands in containers; its faults as named errors."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from trainflow.errors import ClusterAccessDenied, ClusterUnavailable
from trainflow.kubernetes.commands import exit_code, handshake_message, messages
from trainflow.kubernetes.faults import CommandNotRun, NotFound, refusal, status_message
from trainflow.kubernetes.lines import complete_lines, split_lines

CONNECT_SECONDS = 5.0
"""Time to connect; a cluster that does not answer is asked again."""

READ_SECONDS = 20.0
"""Seconds without a byte before a request counts as lost. A Lambda that hangs costs a whole poll lap."""

MERGE = "application/merge-patch+json"
"""Content type of a change to an object (RFC 7396): fields that it leaves out stay as they are."""

SILENCE_SECONDS = 60.0
"""The same for a stream that is followed; the caller opens it again where it ended."""

EXEC_SECONDS = 60.0
"""Time limit of a command in a container, in seconds."""

CHUNK_BYTES = 64 * 1024

Query = Sequence[tuple[str, Any]]

Write = Callable[[bool, bytes], None]
"""Takes what a command prints; first whether that is standard error."""


class LineStream:
    """An answer that arrives line by line; it is opened when the first line is asked for, or by `open`."""

    def __init__(self, api: KubernetesApi, path: str, query: Query, *, silence_seconds: float, seconds: float | None):
        self._api, self._path, self._query = api, path, query
        self._silence_seconds, self._seconds = silence_seconds, seconds
        self._response: Any = None

    def open(self) -> LineStream:
        """Send the request.

        Raises:
            ClusterUnavailable, ClusterAccessDenied, RequestRefused: As `KubernetesApi.call`.
        """
        with translated():
            self._response = self._api.request(
                "GET", self._path, query=self._query, accept="*/*", read_seconds=self._silence_seconds
            )
        return self

    def __iter__(self) -> Iterator[str]:
        """Lines with their line feed; only the very last may lack it.

        Raises:
            ClusterUnavailable: If the connection breaks.
        """
        for line in split_lines(self._chunks()):
            yield line.decode("utf-8", errors="replace")

    def complete(self) -> Iterator[bytes]:
        """Complete lines without their line feed; of a long one its beginning."""
        return complete_lines(self._chunks())

    def close(self) -> None:
        """End the stream, also while another thread waits for its next line."""
        # Each of these says that it has ended by itself meanwhile.
        with suppress(OSError, ValueError, RuntimeError, NotImplementedError, AttributeError):
            self._response.shutdown()

    def _chunks(self) -> Iterator[bytes]:
        if self._response is None:
            self.open()
        end = None if self._seconds is None else time.monotonic() + self._seconds
        try:
            for chunk in self._response.stream(CHUNK_BYTES):
                yield chunk
                if end is not None and time.monotonic() >= end:
                    return
            self._response.release_conn()
        except (HTTPError, OSError, ValueError, AttributeError) as broken:
            # Closing it from another thread surfaces as any of these, a broken connection as the first two.
            raise ClusterUnavailable(f"The stream from the Kubernetes API broke off: {broken}.") from broken
        finally:
            self._response.close()  # of a log that is not read to its end, the rest is not wanted


class KubernetesApi:
    """One cluster's API."""

    def __init__(self, api: client.ApiClient, *, read_seconds: float = READ_SECONDS) -> None:
        """Prepares the client; it makes no request yet.

        Args:
            api: The official client, as `connection.py` makes it.
            read_seconds: Seconds without a byte before a request counts as lost.
        """
        self._api, self._read_seconds = api, read_seconds

    def call(self, method: str, path: str, *, query: Query = (), body: Any = None) -> Any:
        """One request, as plain JSON: the generated models would cost more time than the request itself.

        Raises:
            ClusterUnavailable: If the API did not answer, answered with an error, or throttled the request.
            ClusterAccessDenied: If it does not know the caller, or does not let the caller do this.
            RequestRefused: If it refuses the request as it is: `NotFound`, `AlreadyExists`, `Expired` and others.
        """
        with translated():
            response = self.request(
                method, path, query=query, body=body, accept="application/json", read_seconds=self._read_seconds
            )
            try:
                return json.loads(response.data)
            except ValueError as cut_off:
                raise ClusterUnavailable(f"The answer of the Kubernetes API broke off: {cut_off}.") from cut_off

    def find(self, path: str, *, query: Query = ()) -> Any:
        """An object or a list; None if it is not there."""
        try:
            return self.call("GET", path, query=query)
        except NotFound:
            return None

    def list(self, path: str, label_selector: str, *, field_selector: str = "", limit: int = 0) -> list[Any]:
        """The objects that the selectors choose."""
        query: list[tuple[str, Any]] = [("labelSelector", label_selector)]
        if field_selector:
            query.append(("fieldSelector", field_selector))
        if limit:
            query.append(("limit", limit))
        items: list[Any] = self.call("GET", path, query=query)["items"]
        return items

    def delete(self, path: str, *, grace_period_seconds: int | None = None) -> None:
        """Delete an object, and in time what it owns. Safe to repeat."""
        query: list[tuple[str, Any]] = [("propagationPolicy", "Background")]
        if grace_period_seconds is not None:
            query.append(("gracePeriodSeconds", grace_period_seconds))
        with suppress(NotFound):
            self.call("DELETE", path, query=query)

    def delete_all(self, path: str, label_selector: str, *, grace_period_seconds: int) -> None:
        """Delete the objects that the selector chooses. Safe to repeat."""
        self.call(
            "DELETE", path, query=[("labelSelector", label_selector), ("gracePeriodSeconds", grace_period_seconds)]
        )

    def log(
        self,
        pod: str,
        *,
        container: str,
        since: str | None = None,
        tail_lines: int | None = None,
        follow: bool = False,
        seconds: float | None = None,
        silence_seconds: float = SILENCE_SECONDS,
    ) -> LineStream:
        """A container's log, each line behind its time stamp.

        The kubelet knows `since` to the second only. Its `limitBytes` is not used: what it cuts off within a second
        could never be asked for.

        Args:
            pod: Path of the pod.
            container: Name of the container: without one, the API refuses a pod that has several.
            since: From this second on (RFC 3339).
            tail_lines: At most so many of the newest lines.
            follow: Whether to go on with lines that are written later.
            seconds: Time limit of the stream, which then ends with its present chunk; None for no limit.
            silence_seconds: Seconds without a byte before a followed log counts as lost.
        """
        query: list[tuple[str, Any]] = [("timestamps", "true"), ("container", container)]
        if follow:
            query.append(("follow", "true"))
        if since:
            query.append(("sinceTime", since))
        if tail_lines is not None:
            query.append(("tailLines", tail_lines))
        silence = silence_seconds if follow else self._read_seconds
        return LineStream(self, f"{pod}/log", query, silence_seconds=silence, seconds=seconds)

    def watch(self, path: str, label_selector: str, resource_version: str) -> LineStream:
        """Changes of the selected objects since a version, one JSON object a line.

        The server ends the watch after a while, so that a lost connection is noticed.
        """
        query = [
            ("labelSelector", label_selector),
            ("resourceVersion", resource_version),
            ("watch", "true"),
            ("allowWatchBookmarks", "true"),
            ("timeoutSeconds", str(int(SILENCE_SECONDS) - 10)),
        ]
        return LineStream(self, path, query, silence_seconds=SILENCE_SECONDS, seconds=None)

    def execute(self, namespace: str, pod: str, container: str, command: Sequence[str]) -> str:
        """Standard output of a command in a running container.

        Raises:
            CommandNotRun: If the container did not take the command.
        """
        # No function runs commands: they do not wait for the websocket library.
        from kubernetes import stream
        from websocket import WebSocketException

        own = client.ApiClient(self._api.configuration)  # the stream module changes its client for good
        try:
            return str(
                stream.stream(
                    client.CoreV1Api(own).connect_get_namespaced_pod_exec,
                    pod,
                    namespace,
                    container=container,
                    command=list(command),
                    stdout=True,
                    stderr=False,
                    _request_timeout=EXEC_SECONDS,
                )
            )
        except (client.ApiException, WebSocketException, OSError, ValueError) as refused:
            raise CommandNotRun(f"{pod} does not take commands: {refused}") from None

    def run_command(
        self,
        namespace: str,
        pod: str,
        container: str | None,
        command: Sequence[str],
        write: Callable[[bool, bytes], None],
    ) -> int:
        """Run a command in a container until it ends, without a terminal and without input.

        Args:
            namespace: Namespace of the pod.
            pod: Name of the pod.
            container: Name of its container; None for the default one.
            command: Program and its words; no shell is in between.
            write: Called with what the command prints, as it comes; first whether that is standard error.

        Returns:
            The command's exit code.

        Raises:
            CommandNotRun: If the container did not take the command, or the connection broke.
        """
        from kubernetes import stream
        from websocket import WebSocketException

        own = client.ApiClient(self._api.configuration)  # the stream module changes its client for good
        options: dict[str, Any] = {"container": container} if container else {}
        try:
            opened = stream.stream(
                client.CoreV1Api(own).connect_get_namespaced_pod_exec,
                pod,
                namespace,
                command=list(command),
                stdout=True,
                stderr=True,
                binary=True,
                _preload_content=False,
                **options,
            )
            status = b""
            for channel, content in messages(opened.sock):
                if channel == stream.ws_client.ERROR_CHANNEL:
                    status += content
                elif content:
                    write(channel == stream.ws_client.STDERR_CHANNEL, content)
            return exit_code(status)
        except (client.ApiException, WebSocketException, OSError, ValueError) as refused:
            reason = handshake_message(str(getattr(refused, "reason", None) or refused))
            raise CommandNotRun(f"The pod {pod} does not take the command: {reason}") from None

    def request(
        self, method: str, path: str, *, query: Query, body: Any = None, accept: str, read_seconds: float
    ) -> Any:
        """An unread answer of urllib3; faults are the official client's own."""
        return self._api.call_api(
            path,
            method,
            query_params=list(query),
            header_params={"Accept": accept, "Content-Type": MERGE if method == "PATCH" else "application/json"},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
            _request_timeout=(CONNECT_SECONDS, read_seconds),
        )


@contextmanager
def translated() -> Iterator[None]:
    """Raise our errors for what any call may meet."""
    try:
        yield
    except client.ApiException as error:
        status = int(error.status or 0)
        if status == 429 or status >= 500:
            raise ClusterUnavailable(f"The Kubernetes API answered {status} {error.reason}.") from error
        if status in (401, 403):
            said = status_message(error.body) or f"{status} {error.reason}"
            raise ClusterAccessDenied(f"The Kubernetes API refused: {said}.") from error
        if status == 0:  # the official client's form of a failed TLS handshake
            raise ClusterUnavailable(f"The Kubernetes API did not answer: {error.reason}.") from error
        raise refusal(status, error.reason, error.body) from error
    except (HTTPError, OSError) as error:
        raise ClusterUnavailable(f"The Kubernetes API did not answer: {error}.") from error
