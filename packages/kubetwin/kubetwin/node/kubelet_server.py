"""The kubelet's own endpoint over HTTPS: logs of containers, and commands in them.

* `GET /containerLogs/{namespace}/{pod}/{container}` answers `pods/log`;
* `GET /exec/…` and `/attach/…` become WebSockets.

Bound to loopback. As with a kubelet by default, the certificate is the node's own and the API server does not check
it. The API server shows its own certificate, and only with that is anything answered but `/healthz`: every user of the
machine reaches the port.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from datetime import UTC, datetime
from urllib.parse import parse_qs, parse_qsl, unquote, urlsplit

from kubetwin.certificates import create_authority, issue_certificate
from kubetwin.https_server import HttpsServer, QuietHandler
from kubetwin.node.log_catalogue import KubeletRefusal, Logs
from kubetwin.node.log_reader import LogOptions, read_log
from kubetwin.node.log_writer import ContainerLog
from kubetwin.node.multiplexer import WebSocket
from kubetwin.node.running_containers import RunningContainers
from kubetwin.node.streams import STREAMS, handshake, open_stream

_FOLLOW_CHECK_SECONDS = 30.0
"""Seconds between two checks of a follower whether its client has disconnected."""


_API_SERVER = {("organizationName", "system:masters"), ("commonName", "kube-apiserver-kubelet-client")}
"""Subjects of certificates for commands: kubetwin's API server, and kubeadm's by its name."""


class KubeletServer(HttpsServer):
    """Serves until it is stopped.

    Args:
        logs: Logs of the node's containers.
        running: Its containers that run, for commands in them.
        client_authority_pem: Issuer of the API server's certificate; without it, no request is answered.
    """

    def __init__(
        self, logs: Logs, running: RunningContainers | None = None, *, client_authority_pem: str | None = None
    ) -> None:
        authority = create_authority("kubetwin-node")
        certificate = issue_certificate(authority, f"system:node:{socket.gethostname()[:40]}")
        super().__init__(_Handler, certificate, name="kubelet", client_authority_pem=client_authority_pem)
        self.logs = logs
        self.running = running or RunningContainers()


class _Handler(QuietHandler):
    server: KubeletServer

    def do_GET(self) -> None:
        """Answer a request for a log or for streams; `/healthz` answers `ok`."""
        url = urlsplit(self.path)
        parts = [unquote(part) for part in url.path.strip("/").split("/")]
        if parts == ["healthz"]:
            self.answer(200, b"ok")
        elif not self._is_api_server():
            self.answer(401, b"Unauthorized")
        elif parts[0] in STREAMS:
            self._answer_stream(parts, parse_qs(url.query))
        elif len(parts) != 4 or parts[0] != "containerLogs":
            self.answer(404, b"404 page not found\n")
        else:
            self._answer_log(parts[1:], dict(parse_qsl(url.query)))

    do_POST = do_GET

    def _answer_log(self, names: list[str], query: dict[str, str]) -> None:
        try:
            options = LogOptions.from_query(query, datetime.now(UTC))
        except ValueError as error:
            self.answer(400, f"{error}\n".encode())
            return
        namespace, pod, container = names
        try:
            path, live = self.server.logs.find(namespace, pod, container, previous=options.previous)
        except KubeletRefusal as error:
            self.answer(error.status, f"{error}\n".encode())
            return
        with path.open("rb") as log:
            self.send_response(200)
            self.send_header("Content-Type", "text/plain")
            self.send_chunks(read_log(log, options, None if live is None else self._waiter(live)))

    def _answer_stream(self, parts: list[str], query: dict[str, list[str]]) -> None:
        try:
            stream = open_stream(parts, query, self.server.running)
            accepted = handshake(self.headers, stream.protocols)
        except KubeletRefusal as error:
            self.answer(error.status, f"{error}".encode())
            return
        self.send_response(101)
        for name, value in accepted.items():
            self.send_header(name, value)
        self.end_headers()
        self.close_connection = True
        self.connection.settimeout(None)
        stream.serve(WebSocket(self.connection))

    def _is_api_server(self) -> bool:
        shown = self.connection.getpeercert() if isinstance(self.connection, ssl.SSLSocket) else None
        subject = (shown or {}).get("subject", ())
        return any(pair in _API_SERVER for names in subject for pair in names)

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
