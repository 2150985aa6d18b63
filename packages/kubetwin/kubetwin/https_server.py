"""A threading HTTPS server on loopback, for the kubelets' logs and for the gateway to a foreign cluster."""

from __future__ import annotations

import contextlib
import ssl
import sys
import tempfile
from collections.abc import Iterable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from kubetwin.background import Worker, report
from kubetwin.certificates import Certificate

LOOPBACK = "127.0.0.1"

HANDSHAKE_SECONDS = 10.0


class HttpsServer(ThreadingHTTPServer):
    """Answers with a handler class, a thread a connection, until it is stopped."""

    daemon_threads = True
    block_on_close = False  # a followed log or a watch would keep `stop` waiting

    def __init__(
        self,
        handler: type[BaseHTTPRequestHandler],
        certificate: Certificate,
        *,
        name: str,
        client_authority_pem: str | None = None,
    ) -> None:
        """
        Args:
            handler: Answers the requests.
            certificate: The server's own.
            name: Name of the server's thread.
            client_authority_pem: Issuer of the certificates that clients may show.
        """
        super().__init__((LOOPBACK, 0), handler)
        self._tls = _context(certificate)
        if client_authority_pem:
            self._tls.load_verify_locations(cadata=client_authority_pem)
            self._tls.verify_mode = ssl.CERT_OPTIONAL
        self.port: int = self.server_address[1]
        self._thread = Worker(self.serve_forever, name=name)

    def use(self, certificate: Certificate) -> None:
        """Show another certificate from the next connection on."""
        self._tls = _context(certificate)

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port."""
        self.shutdown()
        self.server_close()

    def finish_request(self, request: Any, client_address: Any) -> None:
        """Shake hands in the request's own thread: a slow client delays no other client."""
        request.settimeout(HANDSHAKE_SECONDS)
        with contextlib.suppress(OSError), self._tls.wrap_socket(request, server_side=True) as secured:
            super().finish_request(secured, client_address)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Report an error, but none of the connection: a client may leave at any time."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, OSError):
            report(f"answers of {self._thread.name}", error)


class QuietHandler(BaseHTTPRequestHandler):
    """Base of the servers' handlers."""

    protocol_version = "HTTP/1.1"
    timeout = 60
    disable_nagle_algorithm = True  # a head and a short body are two packets: the second would wait for 40 ms

    def answer(self, status: int, body: bytes, content_type: str = "text/plain") -> None:
        """Answer with a whole body."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def send_chunks(self, blocks: Iterable[bytes]) -> None:
        """End the headers, and send a body as it comes."""
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for block in filter(None, blocks):
            self.wfile.write(b"%x\r\n%b\r\n" % (len(block), block))
        self.wfile.write(b"0\r\n\r\n")

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet about requests."""


def _context(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile() as chain:  # readable by its owner only; OpenSSL needs a file
        chain.write((certificate.certificate_pem + certificate.key_pem).encode())
        chain.flush()
        context.load_cert_chain(chain.name)
    return context
