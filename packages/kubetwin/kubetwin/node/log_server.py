"""The kubelet's own endpoint: `GET /containerLogs/{namespace}/{pod}/{container}` over HTTPS.

Bound to loopback. The API server reads from it to answer `pods/log`; as with a kubelet by default, the
certificate is the node's own and the API server does not check it.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from urllib.parse import parse_qsl, unquote, urlsplit

from kubetwin.certificates import create_authority, issue_certificate
from kubetwin.https_server import HttpsServer, QuietHandler
from kubetwin.node.log_catalogue import Logs, NoLog
from kubetwin.node.log_reader import LogOptions, read_log
from kubetwin.node.log_writer import ContainerLog

_FOLLOW_CHECK_SECONDS = 30.0
"""Interval in seconds at which a follower checks whether its client has disconnected."""


class LogServer(HttpsServer):
    """Serves logs until it is stopped."""

    def __init__(self, logs: Logs) -> None:
        authority = create_authority("kubetwin-node")
        certificate = issue_certificate(authority, f"system:node:{socket.gethostname()[:40]}")
        super().__init__(_Handler, certificate, name="node-logs")
        self.logs = logs


class _Handler(QuietHandler):
    server: LogServer

    def do_GET(self) -> None:
        """Answer a request for a log; `/healthz` answers `ok`."""
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        if parts == ["healthz"]:
            self._text(200, "ok")
        elif len(parts) != 4 or parts[0] != "containerLogs":
            self._text(404, "404 page not found\n")
        else:
            self._answer_log(parts[1:], dict(parse_qsl(url.query)))

    def _answer_log(self, names: list[str], query: dict[str, str]) -> None:
        try:
            options = LogOptions.from_query(query, datetime.now(UTC))
        except ValueError as error:
            self._text(400, f"{error}\n")
            return
        namespace, pod, container = names
        try:
            path, live = self.server.logs.find(namespace, pod, container, previous=options.previous)
        except NoLog as error:
            self._text(error.status, f"{error}\n")
            return
        with path.open("rb") as log:
            self._stream(read_log(log, options, None if live is None else self._waiter(live)))

    def _waiter(self, live: ContainerLog) -> Callable[[int], bool]:
        def wait_for_more(offset: int) -> bool:
            while True:
                grows = live.wait_for_more(offset, _FOLLOW_CHECK_SECONDS)
                if not grows or live.size > offset:
                    return grows
                if self._client_has_gone():
                    return False

        return wait_for_more

    def _client_has_gone(self) -> bool:
        self.connection.settimeout(0)
        try:
            return not self.connection.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return False
        except OSError:
            return True
        finally:
            self.connection.settimeout(self.timeout)

    def _stream(self, blocks: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for block in blocks:
            if block:
                self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
        self.wfile.write(b"0\r\n\r\n")

    def _text(self, status: int, text: str) -> None:
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
