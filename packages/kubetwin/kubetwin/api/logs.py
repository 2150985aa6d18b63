"""pods/log: checked here, then streamed from the kubelet of the pod's node."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlencode

from starlette.responses import Response, StreamingResponse

from kubetwin.api.call import Call
from kubetwin.api.containers import container_of
from kubetwin.api.negotiation import negotiate
from kubetwin.api.requests import parse_boolean, parse_integer
from kubetwin.model import times
from kubetwin.model.errors import (
    ApiError,
    FieldError,
    Object,
    bad_request,
    bad_value,
    forbidden_field,
    internal_error,
    invalid,
)
from kubetwin.state.cluster import Cluster

OFFERED = ("text/plain", "application/json", "application/yaml", "application/vnd.kubernetes.protobuf")
CONNECT_SECONDS = 10
_CHUNK = 64 * 1024
_CHUNKS_AHEAD = 16
"""Size of a log's buffer for a client that reads slowly; the rest stays at the kubelet."""
_NUMBERS = ("tailLines", "limitBytes", "sinceSeconds")
_SWITCHES = ("timestamps", "follow", "previous")


@dataclass(frozen=True)
class Kubelet:
    """Address at which a node serves its pods' logs."""

    host: str
    port: int

    @classmethod
    def of(cls, node: Object) -> Kubelet:
        """The endpoint that a node announces in its status.

        Raises:
            ApiError: 500 when the node announces none.
        """
        status = node.get("status") or {}
        addresses = {a["type"]: a["address"] for a in status.get("addresses") or []}
        port = ((status.get("daemonEndpoints") or {}).get("kubeletEndpoint") or {}).get("Port", 0)
        host = addresses.get("InternalIP") or addresses.get("Hostname")
        if not host or not port:
            raise internal_error(f"no preferred addresses found; known addresses: {sorted(addresses.items())}")
        return cls(host, int(port))


class LogProxy:
    """Answers pods/log."""

    def __init__(self, cluster: Cluster, context: ssl.SSLContext) -> None:
        self.cluster = cluster
        self.context = context

    async def get(self, call: Call) -> Response:
        negotiate(call.headers.get("accept", ""), offered=OFFERED)
        pod = self.cluster.get(call.resource, call.info.namespace, call.info.name)
        options = _options(call)
        container = container_of(pod, options.pop("container", ""))
        node_name = pod["spec"].get("nodeName")
        if not node_name:
            return Response(status_code=204)
        node = self.cluster.store.get("nodes", "", node_name)
        if node is None:
            raise ApiError(404, "NotFound", f'nodes "{node_name}" not found', {"name": node_name, "kind": "nodes"})
        path = f"/containerLogs/{call.info.namespace}/{call.info.name}/{container}?{urlencode(options)}"
        stream = _Stream(Kubelet.of(node), path, self.context, asyncio.get_running_loop())
        status, text = await stream.head()
        if status != 200:
            raise _upstream_error(status, text)
        return StreamingResponse(stream.chunks(), media_type="text/plain")


def _options(call: Call) -> dict[str, str]:
    """The options that go on to the kubelet.

    Raises:
        ApiError: 400 for a value that does not parse, 422 for one that is out of range.
    """
    query = call.query
    faults: list[FieldError] = []
    for name in _NUMBERS:
        if name not in query:
            continue
        value, least = parse_integer(query[name]), 0 if name == "tailLines" else 1
        if value < least:
            bound = "greater than or equal to 0" if least == 0 else "greater than 0"
            faults.append(bad_value(name, value, f"must be {bound}"))
    if "sinceTime" in query:
        _check_time(query["sinceTime"])
        if "sinceSeconds" in query:
            detail = "at most one of `sinceTime` or `sinceSeconds` may be specified"
            faults.insert(0, forbidden_field("[]", detail))
    if faults:
        raise invalid("PodLogOptions", "", call.info.name, faults)
    options = {name: query[name] for name in (*_NUMBERS, "sinceTime", "container") if name in query}
    return options | {name: "true" for name in _SWITCHES if parse_boolean(query.get(name))}


def _check_time(text: str) -> None:
    try:
        times.parse(text)
    except ValueError:
        layout = "2006-01-02T15:04:05Z07:00"
        raise bad_request(f'parsing time "{text}" as "{layout}": cannot parse "{text}" as "2006"') from None


def _upstream_error(status: int, text: str) -> ApiError:
    """The kubelet's plain answer as a Status."""
    message = text.strip()
    if status == 400:
        return bad_request(message)
    if status == 404:
        detail = f"the server could not find the requested resource ( {message})"
        return ApiError(404, "NotFound", detail, {})
    return internal_error(f"Internal error occurred: {message}")


class _Stream:
    """One request to a kubelet. It blocks, so it runs in a thread of its own and passes its bytes to the event loop."""

    def __init__(self, kubelet: Kubelet, path: str, context: ssl.SSLContext, loop: asyncio.AbstractEventLoop) -> None:
        self.connection = http.client.HTTPSConnection(
            kubelet.host, kubelet.port, context=context, timeout=CONNECT_SECONDS
        )
        self.path = path
        self.loop = loop
        self._socket: socket.socket | None = None
        self.started: asyncio.Future[tuple[int, str]] = loop.create_future()
        self.queue: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._room = threading.Semaphore(_CHUNKS_AHEAD)
        self._given_up = False
        threading.Thread(target=self._run, name=f"kubelet {path}", daemon=True).start()

    async def head(self) -> tuple[int, str]:
        """The status, and the text of an answer that is no log."""
        return await self.started

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            while (chunk := await self.queue.get()) is not None:
                self._room.release()
                yield chunk
        finally:
            self._hang_up()

    def _hang_up(self) -> None:
        """Wake the thread: closing a socket does not end a read that waits on it."""
        self._given_up = True
        self._room.release()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def _run(self) -> None:
        try:
            self.connection.request("GET", self.path)
            self._socket = self.connection.sock
            response = self.connection.getresponse()
            text = response.read().decode(errors="replace") if response.status != 200 else ""
            self._tell(response.status, text)
            if response.status == 200:
                if self._socket is not None:
                    self._socket.settimeout(None)  # a followed log may be silent for hours
                while chunk := response.read1(_CHUNK):
                    self._room.acquire()
                    if self._given_up:
                        break
                    self._call(self.queue.put_nowait, chunk)
        except (OSError, http.client.HTTPException, ValueError) as fault:
            self._tell(500, f'Get "https://{self.connection.host}:{self.connection.port}{self.path}": {fault}')
        finally:
            self._call(self.queue.put_nowait, None)
            self.connection.close()

    def _tell(self, status: int, text: str) -> None:
        def settle(answer: tuple[int, str]) -> None:
            if not self.started.done():
                self.started.set_result(answer)

        self._call(settle, (status, text))

    def _call(self, function: object, argument: object) -> None:
        # The loop is closed when the server stops while a log is followed.
        if not self.loop.is_closed():
            self.loop.call_soon_threadsafe(function, argument)  # type: ignore[arg-type]
