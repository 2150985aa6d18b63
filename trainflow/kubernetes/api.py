"""Requests to the Kubernetes API, as plain JSON and as lines of text, with its faults as our errors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from kubernetes import client
from urllib3.exceptions import HTTPError

from trainflow.errors import ClusterAccessDenied, ClusterUnavailable

REQUEST_TIMEOUT_SECONDS = (5, 20)
"""To connect, to read. A Lambda that hangs costs a whole poll lap."""

CHUNK_BYTES = 64 * 1024

LONGEST_LINE_BYTES = 64 * 1024
"""What is kept of a line: a program may write one without an end."""

Query = Sequence[tuple[str, Any]]


class KubernetesApi:
    """One cluster's API. 404 and 409 are raised as the client's own errors, for the caller to understand."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    def call(self, method: str, path: str, *, query: Query = (), body: Any = None) -> Any:
        """One request, as plain JSON: the generated models would cost more time than the request itself."""
        with translated():
            return json.loads(self._request(method, path, query=query, body=body, accept="application/json").data)

    def list(self, path: str, label_selector: str, *, field_selector: str = "", limit: int = 0) -> list[Any]:
        """The objects that the selectors choose."""
        query: list[tuple[str, Any]] = [("labelSelector", label_selector)]
        if field_selector:
            query.append(("fieldSelector", field_selector))
        if limit:
            query.append(("limit", limit))
        items: list[Any] = self.call("GET", path, query=query)["items"]
        return items

    def delete(self, path: str) -> None:
        """Delete an object, and in time what it owns. Safe to repeat."""
        try:
            self.call("DELETE", path, query=[("propagationPolicy", "Background")])
        except client.ApiException as error:
            if error.status != 404:
                raise

    def lines(self, path: str, *, query: Query = ()) -> Iterator[bytes]:
        """The complete lines of an answer of text, read as they are asked for."""
        with translated():
            response = self._request("GET", path, query=query, accept="*/*")
            try:
                yield from complete_lines(response.stream(CHUNK_BYTES))
                response.release_conn()
            finally:
                response.close()  # of a log that is not read to its end, the rest is not wanted

    def _request(self, method: str, path: str, *, query: Query, body: Any = None, accept: str) -> Any:
        return self._api.call_api(
            path,
            method,
            query_params=list(query),
            header_params={"Accept": accept, "Content-Type": "application/json"},
            body=body,
            auth_settings=["BearerToken"],
            _preload_content=False,
            _return_http_data_only=True,
            _request_timeout=REQUEST_TIMEOUT_SECONDS,
        )


def complete_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Lines without their ends; of a long one its beginning. A last one without an end is still being written."""
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        for line in lines:
            yield line[:LONGEST_LINE_BYTES]
        rest = rest[:LONGEST_LINE_BYTES]


@contextmanager
def translated() -> Iterator[None]:
    """Raise our errors for what any call may meet."""
    try:
        yield
    except client.ApiException as error:
        if error.status == 429 or error.status >= 500:
            raise ClusterUnavailable(f"The Kubernetes API answered {error.status} {error.reason}.") from error
        if error.status in (401, 403):
            raise ClusterAccessDenied(f"The Kubernetes API refused: {status_message(error)}.") from error
        raise
    except HTTPError as error:
        raise ClusterUnavailable(f"The Kubernetes API did not answer: {error}.") from error


def is_status(error: client.ApiException) -> bool:
    """Whether an API group answered; a path that none answers for gets plain text."""
    try:
        return bool(json.loads(error.body)["kind"] == "Status")
    except (TypeError, ValueError, KeyError):
        return False


def status_message(error: client.ApiException) -> str:
    """What the server says of a refusal."""
    try:
        return str(json.loads(error.body)["message"])
    except (TypeError, ValueError, KeyError):
        return f"{error.status} {error.reason}"
