"""The kubelet's requests that become WebSockets: what is asked for, and whether it can be had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from email.message import Message

from wsproto.utilities import generate_accept_token

from kubetwin.node import exec_session
from kubetwin.node.exec_session import BadRequest, StreamOptions
from kubetwin.node.log_catalogue import KubeletRefusal
from kubetwin.node.multiplexer import WebSocket
from kubetwin.node.running_containers import RunningContainers

STREAMS = ("exec", "attach")


@dataclass(frozen=True)
class Stream:
    """An accepted request."""

    protocols: Sequence[str]
    """The subprotocols that it may speak."""
    serve: Callable[[WebSocket], None]


def open_stream(parts: Sequence[str], query: Mapping[str, Sequence[str]], running: RunningContainers) -> Stream:
    """The requested stream.

    Args:
        parts: Its path: the kind of stream, namespace, pod, container.
        query: Its query parameters.
        running: The node's containers that run.

    Raises:
        KubeletRefusal: If the container does not run, or the requested path does not exist.
    """
    kind, *names = parts
    if len(names) != 3:
        raise KubeletRefusal(404, "404 page not found\n")
    try:
        options = StreamOptions.from_query(query)
    except BadRequest as error:
        raise KubeletRefusal(400, str(error)) from error
    namespace, pod, container = names
    found = running.find(namespace, pod, container)
    if found is None:
        raise KubeletRefusal(500, f'container not found ("{container}")')
    if kind == "attach":
        log = found.process.log
        return Stream(exec_session.PROTOCOLS, lambda socket: exec_session.attach(socket, log))
    command = list(query.get("command") or ())
    if not command:
        raise KubeletRefusal(400, "you must specify at least 1 command for exec")
    launch = found.launch
    return Stream(exec_session.PROTOCOLS, lambda socket: exec_session.execute(socket, launch, command, options))


def handshake(headers: Message, protocols: Sequence[str]) -> dict[str, str]:
    """The headers that accept a WebSocket (RFC 6455, 4.2.2).

    Raises:
        KubeletRefusal: If the request is not a handshake, or names only unknown subprotocols.
    """
    key = headers.get("Sec-WebSocket-Key")
    if headers.get("Upgrade", "").lower() != "websocket" or not key:
        raise KubeletRefusal(400, "this node streams over WebSockets only")
    asked = [name.strip() for name in headers.get("Sec-WebSocket-Protocol", "").split(",")]
    chosen = next((name for name in asked if name in protocols), None)
    if chosen is None:
        raise KubeletRefusal(
            403, f"unable to negotiate protocol: client supports {asked}, server supports {list(protocols)}"
        )
    accept = generate_accept_token(key.encode())
    return {
        "Upgrade": "websocket",
        "Connection": "Upgrade",
        "Sec-WebSocket-Accept": accept if isinstance(accept, str) else accept.decode(),
        "Sec-WebSocket-Protocol": chosen,
    }
