"""pods/exec and pods/attach: checked here, then relayed as WebSockets to the node's kubelet."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Coroutine
from typing import NoReturn
from urllib.parse import urlencode

from starlette.websockets import WebSocket, WebSocketDisconnect
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from kubetwin.api.call import Call
from kubetwin.api.containers import container_of
from kubetwin.api.logs import CONNECT_SECONDS, Kubelet
from kubetwin.api.requests import parse_boolean
from kubetwin.background import report
from kubetwin.model.errors import ApiError, bad_request, internal_error
from kubetwin.state.cluster import Cluster

KINDS = ("exec", "attach")
"""The subresources, and paths of a kubelet."""

_SWITCHES = {"stdin": "input", "stdout": "output", "stderr": "error", "tty": "tty"}
_READ_BYTES = 64 * 1024


class StreamProxy:
    """Connects clients with kubelets."""

    def __init__(self, cluster: Cluster, context: ssl.SSLContext) -> None:
        self.cluster, self.context = cluster, context

    async def serve(self, call: Call, client: WebSocket) -> None:
        """Relay until either side ends.

        Raises:
            ApiError: Before the client is accepted, if the pod or its kubelet refuses.
        """
        kubelet, path = self._target(call)
        upstream = _Upstream(kubelet, path, client.scope["subprotocols"])
        protocol = await upstream.open(self.context)
        try:
            await client.accept(subprotocol=protocol)
            await _until_one_ends(_to_kubelet(client, upstream), _to_client(upstream, client))
        finally:
            await upstream.close()

    def refuse(self, call: Call) -> NoReturn:
        """Answer a request that does not become a WebSocket.

        Raises:
            ApiError: Always: as the pod's own check refuses it, else 400.
        """
        self._target(call)
        spoken = call.headers.get("upgrade", "")
        hint = f": this server streams over WebSockets only, not {spoken}" if spoken else ""
        raise bad_request(f"Upgrade request required{hint}")

    def _target(self, call: Call) -> tuple[Kubelet, str]:
        info = call.info
        pod = self.cluster.get(call.resource, info.namespace, info.name)
        container = container_of(pod, call.query.get("container", ""))
        path = f"/{info.subresource}/{info.namespace}/{info.name}/{container}"
        options = [(short, "1") for name, short in _SWITCHES.items() if parse_boolean(call.query.get(name))]
        options += [("command", word) for word in call.query.getlist("command")]
        node_name = pod["spec"].get("nodeName")
        if not node_name:
            raise bad_request(f"pod {info.name} does not have a host assigned")
        return Kubelet.of(self.cluster, node_name), f"{path}?{urlencode(options)}"


class _Upstream:
    """A WebSocket to a kubelet."""

    def __init__(self, kubelet: Kubelet, path: str, subprotocols: list[str]) -> None:
        self.kubelet, self.path, self.subprotocols = kubelet, path, subprotocols
        self._protocol = WSConnection(ConnectionType.CLIENT)
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._waiting: list[Event] = []

    async def open(self, context: ssl.SSLContext) -> str | None:
        """Connect; the subprotocol that the kubelet has chosen.

        Raises:
            ApiError: If it refuses or does not answer.
        """
        host, port = self.kubelet.host, self.kubelet.port
        try:
            opening = asyncio.open_connection(host, port, ssl=context, server_hostname="")
            self._reader, self._writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
            await self._send(Request(host=f"{host}:{port}", target=self.path, subprotocols=self.subprotocols))
            return await asyncio.wait_for(self._answer(), CONNECT_SECONDS)
        except (OSError, TimeoutError, RemoteProtocolError) as fault:
            raise internal_error(f"error dialing backend: {fault or 'the kubelet does not answer'}") from fault

    async def messages(self) -> AsyncIterator[bytes]:
        """Messages of the kubelet, until it ends the connection."""
        whole = b""
        async for event in self._events():
            if isinstance(event, BytesMessage | TextMessage):
                whole += event.data.encode() if isinstance(event.data, str) else bytes(event.data)
                if event.message_finished:
                    yield whole
                    whole = b""
            elif isinstance(event, Ping):
                await self._send(event.response())
            elif isinstance(event, CloseConnection):
                return

    async def send(self, message: bytes) -> None:
        await self._send(BytesMessage(message))

    async def close(self) -> None:
        with contextlib.suppress(OSError, LocalProtocolError):
            await self._send(CloseConnection(code=1000))
        self._writer.close()

    async def _answer(self) -> str | None:
        status, text = 0, b""
        async for event in self._events():
            if isinstance(event, AcceptConnection):
                return event.subprotocol
            if isinstance(event, RejectConnection):
                status = event.status_code
                if not event.has_body:
                    break
            elif isinstance(event, RejectData):
                text += event.data
                if event.body_finished:
                    break
        message = text.decode(errors="replace").strip()
        if status in (400, 403):
            raise ApiError(status, "BadRequest" if status == 400 else "Forbidden", message, {})
        raise internal_error(f"unable to upgrade connection: {message}")

    async def _events(self) -> AsyncIterator[Event]:
        while True:
            while self._waiting:
                yield self._waiting.pop(0)
            data = await self._reader.read(_READ_BYTES)
            self._protocol.receive_data(data or None)
            self._waiting = list(self._protocol.events())
            if not data and not self._waiting:
                return

    async def _send(self, event: Event) -> None:
        self._writer.write(self._protocol.send(event))
        await self._writer.drain()


async def _to_kubelet(client: WebSocket, upstream: _Upstream) -> None:
    with contextlib.suppress(WebSocketDisconnect, OSError, LocalProtocolError):
        while True:
            message = await client.receive()
            if message["type"] != "websocket.receive":
                return
            data = message.get("bytes")
            await upstream.send(str(message.get("text", "")).encode() if data is None else data)


async def _to_client(upstream: _Upstream, client: WebSocket) -> None:
    with contextlib.suppress(WebSocketDisconnect, OSError, RemoteProtocolError, RuntimeError):
        async for message in upstream.messages():
            await client.send_bytes(message)
        await client.close()


async def _until_one_ends(*directions: Coroutine[None, None, None]) -> None:
    tasks = [asyncio.ensure_future(direction) for direction in directions]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    for ended in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(ended, Exception):
            report("stream of a pod", ended)
