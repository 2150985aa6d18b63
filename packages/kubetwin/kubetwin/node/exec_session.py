"""`exec` and `attach`: a command's streams as numbered channels of a WebSocket.

The channels are those of `v4.channel.k8s.io` and `v5.channel.k8s.io` (apimachinery, pkg/util/remotecommand): each
binary message begins with the number of its channel. In version 5, the client closes its input with channel 255.
"""

from __future__ import annotations

import json
import os
import re
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubetwin.background import Worker
from kubetwin.node.launching import Launch
from kubetwin.node.log_reader import LogOptions, read_log
from kubetwin.node.log_writer import ContainerLog
from kubetwin.node.multiplexer import Multiplexer, Sink, WebSocket
from kubetwin.node.supervised import CannotStart, Streams, Supervised

PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")

_SPECIAL = re.compile(r"[][.*^$,\\]")
"""Characters that mean something in the expressions of sed."""

_STDIN, _STDOUT, _STDERR, _STATUS, _RESIZE, _CLOSE = 0, 1, 2, 3, 4, 255


_WAIT_SECONDS = 30.0


class BadRequest(Exception):
    """The options of a request do not fit together; the text is the kubelet's."""


@dataclass(frozen=True)
class StreamOptions:
    """The streams that a client wants."""

    input: bool
    output: bool
    error: bool
    terminal: bool

    @classmethod
    def from_query(cls, query: Mapping[str, Sequence[str]]) -> StreamOptions:
        """Read from a kubelet's query parameters.

        Raises:
            BadRequest: If no stream is wanted, or a terminal together with standard error.
        """
        given = {name: query.get(name, [""])[0] in ("1", "true") for name in ("input", "output", "error", "tty")}
        if not (given["input"] or given["output"] or given["error"]):
            raise BadRequest("you must specify at least 1 of stdin, stdout, stderr")
        if given["tty"] and given["error"]:
            raise BadRequest("tty and stderr cannot both be true")
        return cls(given["input"], given["output"], given["error"], given["tty"])


# docs/decisions/0048-exec-in-twin-pods-by-websocket.md has the reasons.
class Channels:
    """Channels of one connection."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket = websocket
        self.multiplexer = Multiplexer(websocket, self._take)
        self.stdin: Sink | None = None
        self.resize: Callable[[int, int], None] = lambda _columns, _rows: None

    def show(self, descriptor: int, channel: int | None) -> None:
        """Send what a descriptor holds to a channel; None for a stream that the client does not want."""
        self.multiplexer.source(descriptor, lambda data: self.send(channel, data))

    def send(self, channel: int | None, data: bytes) -> None:
        if channel is not None:
            self._websocket.send(bytes([channel]) + data)

    def finish(self, status: Mapping[str, object]) -> None:
        """Report the end, and close the connection."""
        self.send(_STATUS, json.dumps(status).encode())
        self._websocket.close()

    def _take(self, message: bytes) -> None:
        channel, data = (message[0], message[1:]) if message else (_STDIN, b"")
        if channel == _STDIN and self.stdin is not None:
            self.stdin.write(data)
        elif channel == _CLOSE and data[:1] == bytes([_STDIN]) and self.stdin is not None:
            self.stdin.end()
        elif channel == _RESIZE:
            size = json.loads(data)
            self.resize(int(size.get("Width", 0)), int(size.get("Height", 0)))


def execute(websocket: WebSocket, launch: Launch, command: Sequence[str], options: StreamOptions) -> None:
    """Run a command in the surroundings of a container until it ends or the client has gone."""
    channels = Channels(websocket)
    argv = with_the_names_of_the_container(command, [launch.rewrite(word) for word in command])
    try:
        process = _start(channels, launch, argv, options)
    except CannotStart as error:
        channels.finish(_could_not_start(error))
        return
    try:
        channels.multiplexer.run()
        if websocket.closed:
            process.kill()
        code = process.wait()
    finally:
        channels.multiplexer.close()
    channels.finish(exit_status(code))


def attach(websocket: WebSocket, log: ContainerLog) -> None:
    """Show what a container prints from now on, until it ends."""
    channels = Channels(websocket)
    read, write = os.pipe()
    channels.show(read, _STDOUT)
    Worker(_follow, log, write, name="node-attach").start()
    try:
        channels.multiplexer.run()
    finally:
        channels.multiplexer.close()
    channels.finish(exit_status(0))


def exit_status(code: int) -> dict[str, object]:
    """The Status about a command's end, for the client."""
    if code == 0:
        return {"metadata": {}, "status": "Success"}
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: exit status {code}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def with_the_names_of_the_container(asked: Sequence[str], argv: list[str]) -> list[str]:
    """A `tar` that packs rewritten paths gives its members the names that the client asked for.

    `kubectl cp` runs tar in the container and refuses an archive with other names.
    """
    if Path(argv[0]).name != "tar":
        return argv
    renamed = [(host.strip("/"), mine.strip("/")) for mine, host in zip(asked, argv, strict=True) if mine != host]
    quoted = [(_SPECIAL.sub(r"\\\g<0>", host), mine) for host, mine in renamed]
    return [*argv, *(f"--transform=flags=rSH;s,^/*{host},{mine}," for host, mine in quoted)]


def _start(channels: Channels, launch: Launch, argv: list[str], options: StreamOptions) -> Supervised:
    if options.terminal:
        return _start_in_terminal(channels, launch, argv)
    output, error = os.pipe(), os.pipe()
    source = os.pipe() if options.input else None
    try:
        streams = Streams(output=output[1], error=error[1], input=source[0] if source else None)
        process = Supervised(argv, launch.environment, launch.folder, streams, launch.wall_words())
    except CannotStart:
        for descriptor in (output[0], error[0], *(source[1:] if source else ())):
            os.close(descriptor)
        raise
    finally:
        for descriptor in (output[1], error[1], *(source[:1] if source else ())):
            os.close(descriptor)
    channels.show(output[0], _STDOUT if options.output else None)
    channels.show(error[0], _STDERR if options.error else None)
    if source:
        channels.stdin = channels.multiplexer.sink(source[1])
    return process


def _start_in_terminal(channels: Channels, launch: Launch, argv: list[str]) -> Supervised:
    master, slave = os.openpty()
    try:
        streams = Streams(output=slave, error=slave, input=slave, terminal=True)
        environment = {"TERM": "xterm", **launch.environment}
        process = Supervised(argv, environment, launch.folder, streams, launch.wall_words())
    except CannotStart:
        os.close(master)
        raise
    finally:
        os.close(slave)
    channels.stdin = channels.multiplexer.sink(os.dup(master))
    channels.show(master, _STDOUT)
    channels.resize = lambda columns, rows: _resize(master, columns, rows)
    return process


def _resize(terminal: int, columns: int, rows: int) -> None:
    import fcntl
    import termios

    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _follow(log: ContainerLog, write: int) -> None:
    try:
        with log.path.open("rb") as stored, os.fdopen(write, "wb", buffering=0) as pipe:
            for block in read_log(stored, LogOptions(follow=True, tail_lines=0), _waiter(log)):
                pipe.write(block)
    except OSError:
        return  # the client has gone


def _waiter(log: ContainerLog) -> Callable[[int], bool]:
    return lambda offset: log.wait_for_more(offset, _WAIT_SECONDS)


def _could_not_start(error: CannotStart) -> dict[str, object]:
    message = f"error executing command in container: failed to exec in container: {error}"
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"Internal error occurred: {message}",
        "reason": "InternalError",
        "details": {"causes": [{"message": message}]},
        "code": 500,
    }
