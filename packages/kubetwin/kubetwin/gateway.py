"""A gateway to a foreign cluster for clients that log in as on EKS.

Programs that run on EKS log in with a presigned STS token. A kind or k3d cluster does not accept it: this server
on loopback checks the token as EKS would, and passes the request on as the caller and the groups that the access entry
gives it. A kubeconfig's identity makes the request, and has to be allowed to impersonate them.
"""

from __future__ import annotations

import base64
import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

import urllib3
from urllib3.exceptions import HTTPError

from kubetwin.access_entries import AccessEntries
from kubetwin.authentication import AUTHENTICATED, Authenticator, StsAuthenticator, User, bearer_token
from kubetwin.certificates import create_authority, issue_certificate
from kubetwin.https_server import LOOPBACK, HttpsServer, QuietHandler
from kubetwin.kubeconfig import Connection, load_connection

CONNECT_SECONDS = 5.0
READ_SECONDS = 3600.0
"""Watches and followed logs are quiet for long."""

NOT_FORWARDED = frozenset({"authorization", "connection", "host", "content-length", "transfer-encoding"})
"""Headers that belong to one of the two connections, or to the other identity."""

IMPERSONATION = "impersonate-"
"""Prefix of the headers for acting as another user; they are removed from a caller's request."""

CHUNK_BYTES = 64 * 1024


class ClusterGateway(HttpsServer):
    """Serves one cluster's API to clients with accepted tokens, until it is stopped."""

    def __init__(
        self,
        connection: Connection,
        authenticators: Sequence[Authenticator] | None,
        *,
        handler: type[GatewayHandler] | None = None,
    ) -> None:
        """
        Args:
            connection: The cluster, with the identity that requests are made with.
            authenticators: What accepts clients' tokens; None to pass requests on with the identity of their client.
            handler: What answers a request.
        """
        authority = create_authority()
        super().__init__(handler or GatewayHandler, issue_certificate(authority, "kubetwin-gateway"), name="gateway")
        self.ca_pem = authority.certificate_pem
        self.endpoint = f"https://{LOOPBACK}:{self.port}"
        self.connection = connection
        self.authenticators = authenticators
        tls = {"ssl_context": connection.tls} if connection.tls else {}
        self.pool = urllib3.PoolManager(maxsize=32, retries=False, **tls)  # type: ignore[arg-type]

    @property
    def ca_data(self) -> str:
        """The certificate authority as `eks:DescribeCluster` shows it."""
        return base64.b64encode(self.ca_pem.encode()).decode()


@contextlib.contextmanager
def serving(kubeconfig: Path, *, sts_endpoint: str, cluster_name: str, access_key: str) -> Iterator[ClusterGateway]:
    """Serve the cluster that a kubeconfig names to clients with an EKS access entry, inside the block.

    Args:
        kubeconfig: Kubeconfig whose identity forwarded requests have.
        sts_endpoint: AWS endpoint that checks login tokens and knows access entries.
        cluster_name: EKS cluster name that login tokens are for.
        access_key: Access key for reading access entries.

    Raises:
        KubeconfigError: If the kubeconfig cannot be used.
    """
    entries = AccessEntries(sts_endpoint, cluster_name, access_key=access_key)
    who = StsAuthenticator(sts_endpoint, cluster_name, groups_of=entries.groups_of)
    gateway = ClusterGateway(load_connection(kubeconfig), [who])
    gateway.start()
    try:
        yield gateway
    finally:
        gateway.stop()


class GatewayHandler(QuietHandler):
    """Answers one connection's requests."""

    server: ClusterGateway

    def forward(self) -> None:
        """Pass a request on, and its answer back."""
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        caller = self._caller()
        if caller is None and self.server.authenticators is not None:
            status = b'{"kind":"Status","apiVersion":"v1","status":"Failure","code":401,"message":"Unauthorized"}'
            self.answer(401, status, "application/json")
            return
        try:
            response = self._upstream(body, caller)
        except (HTTPError, OSError) as error:
            self.answer(503, f"the cluster does not answer: {error}".encode())
            return
        try:
            self._relay(response)
        finally:
            response.release_conn()

    def do_GET(self) -> None:
        """Answer a request of any method."""
        self.forward()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _caller(self) -> User | None:
        """Who asks; None for a token that no authenticator accepts."""
        token = bearer_token(self.headers.get("Authorization", ""))
        if token is None:
            return None
        users = (who.authenticate(token) for who in self.server.authenticators or ())
        return next((user for user in users if user is not None), None)

    def _upstream(self, body: bytes, caller: User | None) -> urllib3.BaseHTTPResponse:
        connection = self.server.connection
        headers = urllib3.HTTPHeaderDict(
            (name, value)
            for name, value in self.headers.items()
            if name.lower() not in NOT_FORWARDED and not name.lower().startswith(IMPERSONATION)
        )
        if caller is None:
            headers["Authorization"] = self.headers.get("Authorization", "")
        else:
            if authorization := connection.authorization():
                headers["Authorization"] = authorization
            headers["Impersonate-User"] = caller.name
            for group in caller.groups:
                if group != AUTHENTICATED:  # Kubernetes adds it
                    headers.add("Impersonate-Group", group)
        return self.server.pool.request(
            self.command,
            connection.server + self.path,
            body=body or None,
            headers=headers,
            preload_content=False,
            decode_content=False,
            redirect=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=READ_SECONDS),
        )

    def _relay(self, response: urllib3.BaseHTTPResponse) -> None:
        self.send_response(response.status)
        for name, value in response.headers.items():
            if name.lower() not in NOT_FORWARDED:
                self.send_header(name, value)
        if "Content-Length" in response.headers:
            self.send_header("Content-Length", response.headers["Content-Length"])
            self.end_headers()
            for block in response.stream(CHUNK_BYTES):
                self.wfile.write(block)
            return
        self.send_chunks(response.stream(CHUNK_BYTES))
