"""Messages of a cluster about a command in a container: why it did not begin, and how it ended."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from trainflow.kubernetes.faults import status_message

EXIT_CODE = "ExitCode"
"""Reason of the cause that holds the exit code (k8s.io/apimachinery, `remotecommand.ExitCodeCauseType`)."""

SEPARATOR = " -+-+- "
"""Between status line, headers and body in websocket-client's message about a refused handshake.

The body is text, or in other versions the Python literal of bytes.
"""


def messages(connection: Any) -> Iterator[tuple[int, bytes]]:
    """Channel and content of each message of a command's stream, in the cluster's order.

    The official client's own stream gathers its messages by channel, so that two that arrive together lose their order.

    Args:
        connection: A `websocket.WebSocket`.

    Raises:
        websocket.WebSocketException, OSError: If the connection breaks.
    """
    from websocket import ABNF

    while True:
        code, frame = connection.recv_data_frame()
        if code == ABNF.OPCODE_CLOSE:
            return
        if frame.data:
            yield frame.data[0], frame.data[1:]


def exit_code(status: bytes) -> int:
    """The exit code in the `Status` object that ends a command's stream.

    Raises:
        ValueError: If it is missing: the command did not begin, or the connection broke.
    """
    if not status:
        raise ValueError("the connection ended before the command did.")
    found = json.loads(status)
    if found.get("status") == "Success":
        return 0
    for cause in (found.get("details") or {}).get("causes") or ():
        if cause.get("reason") == EXIT_CODE:
            return int(cause["message"])
    raise ValueError(str(found.get("message") or "the cluster does not say why."))


def handshake_message(text: str) -> str:
    """The server's own words in websocket-client's message about a refused handshake; otherwise the message."""
    first, *others = text.split(SEPARATOR)
    body = others[-1].strip() if others else ""
    if body.startswith(("b'", 'b"')):
        with suppress(ValueError, SyntaxError):
            body = ast.literal_eval(body)
    sentence = " ".join((status_message(body) or first).split())
    return sentence if sentence.endswith(".") else f"{sentence}."
