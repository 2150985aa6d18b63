"""The kubelet's own endpoint: `GET /containerLogs/{namespace}/{pod}/{container}` over HTTPS.

Bound to loopback. The API server reads from it to answer `pods/log`; as with a kubelet by default, the
certificate is self-signed and the API server does not check it.
"""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import ssl
import tempfile
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from local.cluster.node.log_catalogue import Logs, NoLog
from local.cluster.node.log_reader import LogOptions, read_log
from local.cluster.node.log_writer import ContainerLog
from local.cluster.node.rewriting import LOOPBACK

_FOLLOW_CHECK_SECONDS = 30.0
"""A follower wakes this often to find out whether its client has gone."""


class LogServer:
    """Serves logs until it is stopped."""

    def __init__(self, logs: Logs) -> None:
        self._server = _Server((LOOPBACK, 0), _Handler)
        self._server.tls = _self_signed_context()
        self._server.logs = logs
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, name="node-logs", daemon=True)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port."""
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    tls: ssl.SSLContext
    logs: Logs

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the request's own thread: a slow client holds up nobody else."""
        request.settimeout(10)
        with contextlib.suppress(OSError), self.tls.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients that hang up are nothing to report."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True  # a head and a short body are two packets: the second would wait for 40 ms
    server: _Server

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet about requests."""

    def do_GET(self) -> None:
        """Answer a request for a log; `/healthz` says `ok`."""
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


def _self_signed_context() -> ssl.SSLContext:
    """A TLS context with a new key and a certificate for the loopback address."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"system:node:{socket.gethostname()[:40]}")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=365))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(LOOPBACK))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as chain:  # readable by its owner alone; OpenSSL wants a file
        chain.write(certificate.public_bytes(serialization.Encoding.PEM))
        chain.write(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        chain.flush()
        context.load_cert_chain(chain.name)
    return context
