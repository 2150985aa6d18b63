"""Copies between one WebSocket and the streams of a command, in one thread.

One thread, because a TLS connection must not be read and written by two at the same time.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import ssl
from collections.abc import Callable

from wsproto.connection import Connection, ConnectionType
from wsproto.events import BytesMessage, CloseConnection, Event, Ping, TextMessage
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

CHUNK_BYTES = 32 * 1024
_MOST_WAITING_BYTES = 1024 * 1024
"""Maximum size of unread input; reading from the client stops there."""


class WebSocket:
    """The server's end of a connection whose handshake is over."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self._protocol = Connection(ConnectionType.SERVER)
        self._message = b""
        self.closed = False

    def receive(self) -> list[bytes]:
        """The complete messages that are there. `closed` is set when the client has ended the connection."""
        while not self.closed:
            self.socket.setblocking(False)
            try:
                data = self.socket.recv(CHUNK_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            except OSError:
                data = b""
            try:
                self._protocol.receive_data(data or None)
            except RemoteProtocolError:
                self.closed = True
            self.closed = self.closed or not data
        return list(self._messages())

    def send(self, data: bytes) -> None:
        """Send one binary message."""
        self._write(BytesMessage(data))

    def close(self) -> None:
        """End the connection in order."""
        if not self.closed:
            self._write(CloseConnection(code=1000))
            self.closed = True

    def _messages(self) -> list[bytes]:
        messages = []
        for event in self._protocol.events():
            if isinstance(event, BytesMessage | TextMessage):
                self._message += event.data.encode() if isinstance(event.data, str) else bytes(event.data)
                if event.message_finished:
                    messages.append(self._message)
                    self._message = b""
            elif isinstance(event, Ping):
                self._write(event.response())
            elif isinstance(event, CloseConnection):
                with contextlib.suppress(LocalProtocolError):
                    self._write(event.response())
                self.closed = True
        return messages

    def _write(self, event: Event) -> None:
        try:
            self.socket.setblocking(True)
            self.socket.sendall(self._protocol.send(event))
        except (OSError, LocalProtocolError):
            self.closed = True


class Sink:
    """Takes what a client sends and writes it when the reader is ready. Owns its file descriptor."""

    def __init__(self, descriptor: int, selector: selectors.BaseSelector) -> None:
        self.descriptor = descriptor
        self._selector = selector
        self.waiting = b""
        self._ends = False
        self._open = True
        os.set_blocking(descriptor, False)

    def write(self, data: bytes) -> None:
        """Pass data on, in its order."""
        if self._open and not self._ends and data:
            if not self.waiting:
                self._selector.register(self.descriptor, selectors.EVENT_WRITE, self.flush)
            self.waiting += data

    def end(self) -> None:
        """The client sends nothing more: the reader sees the end of the stream."""
        self._ends = True
        if not self.waiting:
            self.close()

    def flush(self) -> None:
        """Write what there is room for."""
        try:
            self.waiting = self.waiting[os.write(self.descriptor, self.waiting[:CHUNK_BYTES]) :]
        except BlockingIOError:
            return
        except OSError:  # the reader has gone
            self.waiting, self._ends = b"", True
        if not self.waiting:
            self._selector.unregister(self.descriptor)
            if self._ends:
                self.close()

    def close(self) -> None:
        """Release the descriptor."""
        if self._open:
            self._open = False
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(self.descriptor)
            os.close(self.descriptor)


class Multiplexer:
    """The loop between a WebSocket and file descriptors."""

    def __init__(self, websocket: WebSocket, on_message: Callable[[bytes], None]) -> None:
        self.websocket = websocket
        self._on_message = on_message
        self._selector = selectors.DefaultSelector()
        self._sources: set[int] = set()
        self._sinks: list[Sink] = []

    def source(self, descriptor: int, on_data: Callable[[bytes], None]) -> None:
        """Pass on what can be read from a descriptor, which is closed at its end."""

        def read() -> None:
            try:
                data = os.read(descriptor, CHUNK_BYTES)
            except BlockingIOError:
                return
            except OSError:  # a terminal whose last process has ended, a broken connection
                data = b""
            if data:
                on_data(data)
                return
            self._release(descriptor)

        self._selector.register(descriptor, selectors.EVENT_READ, read)
        self._sources.add(descriptor)

    def sink(self, descriptor: int) -> Sink:
        """A place for what the client sends."""
        sink = Sink(descriptor, self._selector)
        self._sinks.append(sink)
        return sink

    def run(self) -> None:
        """Copy until the client has gone or every source has ended."""
        connection = self.websocket.socket
        self._selector.register(connection, selectors.EVENT_READ, self._receive)
        reads = True
        self._receive()  # TLS may hold bytes that no selector sees
        while not self.websocket.closed and self._sources:
            takes = sum(len(sink.waiting) for sink in self._sinks) < _MOST_WAITING_BYTES
            if takes != reads:
                if takes:
                    self._selector.register(connection, selectors.EVENT_READ, self._receive)
                else:
                    self._selector.unregister(connection)
                reads = takes
            for key, _ in self._selector.select():
                key.data()

    def close(self) -> None:
        """Release all descriptors that are left."""
        for descriptor in list(self._sources):
            self._release(descriptor)
        for sink in self._sinks:
            sink.close()
        self._selector.close()

    def _receive(self) -> None:
        for message in self.websocket.receive():
            self._on_message(message)

    def _release(self, descriptor: int) -> None:
        self._sources.discard(descriptor)
        self._selector.unregister(descriptor)
        os.close(descriptor)
