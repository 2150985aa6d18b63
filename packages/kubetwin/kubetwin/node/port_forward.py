"""`port-forward`: connections to ports of a pod, which are ports of the loopback interface in the pods' network.

With `v4.channel.k8s.io`, each port of the request has two channels, data and error, and one connection. Each channel
begins with the port's number in two bytes, the low one first (kubelet, cri/streaming/portforward/websocket.go).
"""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Mapping, Sequence

from kubetwin.node import pod_network
from kubetwin.node.exec_session import BadRequest
from kubetwin.node.multiplexer import Multiplexer, Sink, WebSocket
from kubetwin.node.rewriting import LOOPBACK

PROTOCOLS = ("v4.channel.k8s.io",)

_CONNECT_SECONDS = 5.0


def ports_of(query: Mapping[str, Sequence[str]]) -> list[int]:
    """The ports that a request names.

    Raises:
        BadRequest: If they are missing, or one is not a port.
    """
    words = [word for text in [*query.get("ports", ()), *query.get("port", ())] for word in text.split(",")]
    if not words:
        raise BadRequest('query parameter "port" is required')
    for word in words:
        if not word.isdigit() or not 0 < int(word) < 65536:
            raise BadRequest(f'unable to parse "{word}" as a port: port must be between 1 and 65535')
    return [int(word) for word in words]


def connect(port: int, network: int | None = None) -> socket.socket:
    """A connection to a port of a pod.

    Args:
        port: The port.
        network: The process that keeps the pod's network; None for the machine's network.

    Raises:
        OSError: If nothing listens there; the text names the port.
    """
    try:
        return pod_network.connect(network, LOOPBACK, port, timeout_seconds=_CONNECT_SECONDS)
    except OSError as error:
        raise OSError(f"failed to connect to localhost:{port} inside the pod: {error}") from error


def forward(websocket: WebSocket, ports: Sequence[int], network: int | None = None) -> None:
    """Connect the ports' channels until the client has gone or all connections have ended."""
    sinks: dict[int, Sink] = {}

    def take(message: bytes) -> None:
        if message[:1] and message[0] in sinks:
            sinks[message[0]].write(message[1:])

    multiplexer = Multiplexer(websocket, take)
    try:
        for number, port in enumerate(ports):
            data, error = bytes([2 * number]), bytes([2 * number + 1])
            for channel in (data, error):
                websocket.send(channel + struct.pack("<H", port))
            try:
                connection = connect(port, network)
            except OSError as fault:
                websocket.send(error + str(fault).encode())
                continue
            connection.setblocking(False)
            sinks[2 * number] = multiplexer.sink(os.dup(connection.fileno()))
            multiplexer.source(connection.detach(), lambda block, data=data: websocket.send(data + block))  # type: ignore[misc]
        multiplexer.run(until_sources_end=True)
    finally:
        multiplexer.close()
    websocket.close()
