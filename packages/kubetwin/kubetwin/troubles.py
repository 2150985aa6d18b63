"""A gateway to a cluster's API that fails by request, as an API server, its load balancer or a network does."""

from __future__ import annotations

import json
import socket
import struct
import threading
from enum import StrEnum

from kubetwin.certificates import create_authority, issue_certificate
from kubetwin.gateway import ClusterGateway, GatewayHandler
from kubetwin.kubeconfig import Connection

HELD_SECONDS = 60.0
"""Seconds that a hanging request is held; clients give up before."""


class Trouble(StrEnum):
    """A way to fail."""

    ERROR = "500"
    UNAVAILABLE = "503"
    THROTTLED = "429"
    UNAUTHORIZED = "401"
    HANG = "hang"
    RESET = "reset"
    OTHER_AUTHORITY = "other-authority"
    """The server's certificate is signed by another authority than before."""


_REASONS = {
    Trouble.ERROR: "InternalError",
    Trouble.UNAVAILABLE: "ServiceUnavailable",
    Trouble.THROTTLED: "TooManyRequests",
    Trouble.UNAUTHORIZED: "Unauthorized",
}


class TroubledGateway(ClusterGateway):
    """Passes requests on with the identity of their client, unless it is in trouble."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection, None, handler=_Handler)
        self.trouble: Trouble | None = None
        self.failed = 0
        """Requests that met a trouble. A failed handshake does not count."""
        self.stopped = threading.Event()

    def begin(self, trouble: Trouble) -> None:
        """Fail every request from now on. Another authority stays when the trouble is over."""
        if trouble is Trouble.OTHER_AUTHORITY:
            authority = create_authority()
            self.ca_pem = authority.certificate_pem
            self.use(issue_certificate(authority, "kubetwin-gateway"))
        else:
            self.trouble = trouble

    def end(self) -> None:
        """Answer again."""
        self.trouble = None

    def stop(self) -> None:
        """Close the port; what hangs ends."""
        self.stopped.set()
        super().stop()


class _Handler(GatewayHandler):
    server: TroubledGateway

    def forward(self) -> None:
        trouble = self.server.trouble
        if trouble is None:
            super().forward()
            return
        self.server.failed += 1
        if trouble is Trouble.HANG:
            self.server.stopped.wait(HELD_SECONDS)
            self.close_connection = True
        elif trouble is Trouble.RESET:
            # Without lingering, closing a socket sends RST in place of FIN.
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
        else:
            status = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": _REASONS[trouble]}
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            body = json.dumps({**status, "code": int(trouble), "message": _REASONS[trouble]}).encode()
            self.answer(int(trouble), body, "application/json")

    def end_headers(self) -> None:
        """End a connection with its answer: the next one shakes hands anew, with the certificate of then."""
        self.send_header("Connection", "close")
        super().end_headers()
