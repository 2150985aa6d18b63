"""pods/log: checked here, then streamed from the kubelet of the pod's node."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from urllib.parse import urlencode

from httptools import HttpParserError, HttpResponseParser
from starlette.responses import Response, StreamingResponse

from kubetwin.api.call import Call
from kubetwin.api.containers import container_of
from kubetwin.api.negotiation import negotiate
from kubetwin.api.requests import parse_boolean, parse_integer
from kubetwin.model import times
from kubetwin.model.errors import (
    ApiError,
    FieldError,
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
_NUMBERS = ("tailLines", "limitBytes", "sinceSeconds")
_SWITCHES = ("timestamps", "follow", "previous")


@dataclass(frozen=True)
class Kubelet:
    """Address of a node's server for its pods' logs."""

    host: str
    port: int

    @classmethod
    def of(cls, cluster: Cluster, name: str) -> Kubelet:
        """The endpoint that a node announces in its status.

        Raises:
            ApiError: 404 when the node does not exist, 500 when it does not announce an endpoint.
        """
        node = cluster.store.get("nodes", "", name)
        if node is None:
            raise ApiError(404, "NotFound", f'nodes "{name}" not found', {"name": name, "kind": "nodes"})
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
        path = f"/containerLogs/{call.info.namespace}/{call.info.name}/{container}?{urlencode(options)}"
        stream = _Stream(Kubelet.of(self.cluster, node_name), path)
        status = await stream.open(self.context)
        if status != 200:
            text = b"".join([block async for block in stream.blocks()])
            raise _upstream_error(status, text.decode(errors="replace"))
        return StreamingResponse(stream.blocks(), media_type="text/plain")


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


class _Answer:
    """The part of a kubelet's answer that has arrived; the parser calls the methods."""

    def __init__(self) -> None:
        self.parser = HttpResponseParser(self)
        self.begun = self.complete = False
        self.blocks: list[bytes] = []

    def on_headers_complete(self) -> None:
        self.begun = True

    def on_body(self, block: bytes) -> None:
        self.blocks.append(block)

    def on_message_complete(self) -> None:
        self.complete = True


class _Stream:
    """One request to a kubelet, which is read no faster than the client reads."""

    def __init__(self, kubelet: Kubelet, path: str) -> None:
        self._kubelet, self._path = kubelet, path
        self._answer = _Answer()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter

    async def open(self, context: ssl.SSLContext) -> int:
        """Ask; the status of the answer.

        Raises:
            ApiError: 500 if the kubelet does not answer.
        """
        host, port = self._kubelet.host, self._kubelet.port
        try:
            opening = asyncio.open_connection(host, port, ssl=context, server_hostname="")
            self._reader, self._writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
            await self._ask(f"GET {self._path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")
        except (OSError, HttpParserError) as fault:
            address = f"https://{host}:{port}{self._path}"
            raise internal_error(f'Internal error occurred: Get "{address}": {fault}') from fault
        return int(self._answer.parser.get_status_code())

    async def _ask(self, request: str) -> None:
        """Send the request and wait for the answer's beginning; without one, nothing stays open."""
        try:
            self._writer.write(request.encode())
            while not self._answer.begun:
                await asyncio.wait_for(self._receive(), CONNECT_SECONDS)
        except BaseException:
            self._writer.transport.abort()
            raise

    async def blocks(self) -> AsyncIterator[bytes]:
        """The answer's body; a followed log may be silent for hours."""
        try:
            with contextlib.suppress(OSError, HttpParserError):
                while self._answer.blocks or not self._answer.complete:
                    if not self._answer.blocks:
                        await self._receive()
                    yield b"".join(self._answer.blocks)
                    self._answer.blocks.clear()
        finally:
            self._writer.close()

    async def _receive(self) -> None:
        data = await self._reader.read(_CHUNK)
        if not data:
            raise ConnectionError("the kubelet has ended the connection")
        self._answer.parser.feed_data(data)
