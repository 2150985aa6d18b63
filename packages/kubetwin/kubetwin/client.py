"""A thin client of the Kubernetes API: JSON over HTTPS, and watches.

The official client takes 0.6 s to import; the node needs six verbs of it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

import urllib3
from urllib3.exceptions import HTTPError

from kubetwin.kubeconfig import Connection, KubeconfigError

_CONNECT_SECONDS = 5.0
_READ_SECONDS = 30.0

_MAX_IDLE = 32
"""Number of idle connections that are kept: as many as pods may report at the same time."""

STRATEGIC_MERGE = "application/strategic-merge-patch+json"


class RequestRefused(Exception):
    """The API server refused a request.

    Attributes:
        status: HTTP status code.
    """

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class ApiUnreachable(Exception):
    """No answer came from the API server."""


class ApiClient:
    """Requests to one API server. Safe for use by several threads."""

    def __init__(self, connection: Connection) -> None:
        self.server = connection.server
        self.authority_pem = connection.authority_pem
        self._authorization = connection.authorization
        self._prefix = urlsplit(connection.server).path
        tls = {"ssl_context": connection.tls} if connection.tls else {}
        self._pool = urllib3.connection_from_url(connection.server, maxsize=_MAX_IDLE, retries=False, **tls)

    def close(self) -> None:
        """Close the connections that are kept open for further requests."""
        self._pool.close()

    def get(self, path: str, **query: str) -> dict[str, Any]:
        """Read an object or a list.

        Raises:
            RequestRefused: If the server refuses. (All requests.)
            ApiUnreachable: If it does not answer. (All requests.)
        """
        return self._json("GET", path, query)

    def find(self, path: str) -> dict[str, Any] | None:
        """Read an object; None if it does not exist."""
        try:
            return self.get(path)
        except RequestRefused as error:
            if error.status == 404:
                return None
            raise

    def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object in the collection `path`."""
        return self._json("POST", path, {}, body)

    def patch(self, path: str, body: Mapping[str, Any], content_type: str = STRATEGIC_MERGE) -> dict[str, Any]:
        """Change an object."""
        return self._json("PATCH", path, {}, body, content_type)

    def delete(self, path: str, body: Mapping[str, Any] | None = None) -> None:
        """Delete an object, if it exists."""
        try:
            self._json("DELETE", path, {}, body)
        except RequestRefused as error:
            if error.status not in (404, 409):  # 409: another object of that name, not the one meant
                raise

    def watch(self, path: str, **query: str) -> Watch:
        """Follow the changes of a collection."""
        query["watch"] = "1"
        # A server that is alive sends bookmarks about once a minute.
        response = self._open("GET", path, query, read_seconds=300.0)
        return Watch(response)

    def _json(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        response = self._open(method, path, query, body, content_type)
        try:
            content = response.data
        except HTTPError as error:
            raise ApiUnreachable(f"{self.server} broke off an answer: {error}") from error
        finally:
            response.release_conn()
        answer = _parsed(content)
        return answer if isinstance(answer, dict) else {}

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
        read_seconds: float = _READ_SECONDS,
    ) -> urllib3.BaseHTTPResponse:
        url = self._prefix + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", "User-Agent": "kubetwin-node"}
        try:
            if authorization := self._authorization():
                headers["Authorization"] = authorization
            if body is not None:
                headers["Content-Type"] = content_type
            response = self._pool.request(
                method,
                url,
                body=None if body is None else json.dumps(body).encode(),
                headers=headers,
                preload_content=False,
                timeout=urllib3.Timeout(connect=_CONNECT_SECONDS, read=read_seconds),
            )
        except (HTTPError, OSError, KubeconfigError) as error:
            raise ApiUnreachable(f"{self.server} does not answer: {_reason(error)}") from error
        if response.status >= 400:
            raise self._refusal(method, path, response)
        return response

    def _refusal(self, method: str, path: str, response: urllib3.BaseHTTPResponse) -> RequestRefused:
        content = b""
        with contextlib.suppress(HTTPError):
            content = response.data
        response.release_conn()
        status = _parsed(content)
        message = status.get("message") if isinstance(status, dict) else content.decode(errors="replace").strip()
        return RequestRefused(response.status, f"{method} {path}: {response.status} {message}")


class Watch:
    """The events of one watch request."""

    def __init__(self, response: urllib3.BaseHTTPResponse) -> None:
        self._response = response

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Events until the server ends the watch or the connection breaks."""
        rest = b""
        with contextlib.suppress(HTTPError, OSError, ValueError, AttributeError):  # closed while it was read
            for block in self._response.stream(64 * 1024):
                *lines, rest = (rest + block).split(b"\n")
                for line in lines:
                    event = _parsed(line)
                    if isinstance(event, dict):
                        yield event

    def close(self) -> None:
        """End the watch, also while another thread waits for its next event."""
        with contextlib.suppress(HTTPError, OSError, ValueError, AttributeError, RuntimeError):
            self._response.shutdown()
        with contextlib.suppress(HTTPError, OSError):
            self._response.close()


def _parsed(content: bytes) -> Any:
    try:
        return json.loads(content) if content else None
    except ValueError:
        return None


def _reason(error: Exception) -> str:
    cause = getattr(error, "reason", None) or error
    return str(cause).rpartition(": ")[2] if isinstance(cause, HTTPError) else str(cause)
