"""The Kubernetes API server: HTTPS on the loopback interface, with the controllers beside it."""

from __future__ import annotations

import asyncio
import errno
import secrets
import socket
import ssl
import tempfile
import threading
from collections.abc import Sequence
from pathlib import Path

import uvicorn

from kubetwin.api.app import Application
from kubetwin.api.discovery import Discovery
from kubetwin.api.logs import LogProxy
from kubetwin.api.streams import StreamProxy
from kubetwin.api.subresources import Subresources
from kubetwin.authentication import Authenticator, StaticTokenAuthenticator, identify_with
from kubetwin.background import Worker, report
from kubetwin.certificates import Certificate, create_authority, issue_certificate
from kubetwin.controllers import start_controllers
from kubetwin.controllers.namespaces import bootstrap
from kubetwin.resources import load_registry
from kubetwin.state.cluster import Cluster, NodeTimes
from kubetwin.store import Store
from kubetwin.tokens import ServiceAccountTokens

START_SECONDS = 20
STOP_SECONDS = 5
LINGER_SECONDS = 0.2
"""Time for open watches to end before the server stops."""
_BACKLOG = 128


class PortInUse(OSError):
    """Another program listens on the port."""


class ApiServer:
    """One cluster's API server, in a thread of this process.

    Attributes:
        endpoint: `https://127.0.0.1:PORT`, after `start()`.
        ca_pem: The certificate authority that clients have to trust.
        authority: The same with its key, to issue certificates for kubelets.
        admin_token: Bearer token of the administrator, new for each server.
    """

    def __init__(
        self,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        authenticators: Sequence[Authenticator] = (),
        node_times: NodeTimes | None = None,
    ) -> None:
        """
        Args:
            host: Address to listen on; anything but a loopback address exposes the machine's processes.
            port: Port to listen on, 0 for a free one.
            authenticators: Tried after the administrator's token and service account tokens.
            node_times: After how long a silent node is lost; Kubernetes' own times if not given.
        """
        self.endpoint = ""
        self.admin_token = secrets.token_urlsafe(32)
        self.authority: Certificate = create_authority()
        self.ca_pem = self.authority.certificate_pem
        self._host, self._port = host, port
        self._node_times = node_times or NodeTimes()
        self._store = Store()
        self._tokens = ServiceAccountTokens(lambda namespace, name: self._store.get("serviceaccounts", namespace, name))
        self._identify = identify_with([StaticTokenAuthenticator(self.admin_token), self._tokens], authenticators)
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._socket: socket.socket | None = None
        self._uvicorn: _Server | None = None
        self._application: Application | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ready = threading.Event()
        self._failure: BaseException | None = None

    def start(self) -> None:
        """Listen and answer; returns when requests are answered.

        Raises:
            PortInUse: If another program has the port.
        """
        self._socket = _listen(self._host, self._port)
        port = self._socket.getsockname()[1]
        self.endpoint = f"https://{self._host}:{port}"
        self._folder = tempfile.TemporaryDirectory(prefix="kubetwin-api-")
        self._thread = Worker(self._run, name="kubernetes-api")
        self._thread.start()
        if not self._ready.wait(START_SECONDS) or self._failure is not None:
            raise RuntimeError("the Kubernetes API server did not start") from self._failure

    def stop(self) -> None:
        """Close all watches and stop; safe to call twice."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._begin_stop)
        if self._thread is not None:
            self._thread.join(STOP_SECONDS)
            self._thread = None
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None

    def __enter__(self) -> ApiServer:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _begin_stop(self) -> None:
        if self._application is not None:
            self._application.reader.close()
        if self._uvicorn is not None and self._loop is not None:
            self._uvicorn.should_exit = True
            self._loop.call_later(LINGER_SECONDS, self._uvicorn.hurry)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:  # noqa: BLE001 (handed to the thread that waits in start)
            self._failure = failure
            if self._ready.is_set():  # nobody waits in start any more
                report("the Kubernetes API server, which has stopped", failure)
            self._ready.set()

    async def _serve(self) -> None:
        if self._folder is None or self._socket is None:
            raise RuntimeError("call start(), which prepares the socket")
        self._loop = asyncio.get_running_loop()
        certificate, key = self._write_certificate("server", issue_certificate(self.authority, "kube-apiserver"))
        self._application = self._build()
        config = uvicorn.Config(
            self._application,
            ssl_certfile=certificate,
            ssl_keyfile=key,
            log_level="warning",
            access_log=False,
            lifespan="off",
            ws="wsproto",
            ws_ping_interval=None,  # a client that does not read for a while, as the Python client, is not lost
            timeout_keep_alive=60,
            timeout_graceful_shutdown=1,
        )
        self._uvicorn = _Server(config, self._ready)
        await self._uvicorn.serve(sockets=[self._socket])

    def _build(self) -> Application:
        registry = load_registry()
        cluster = Cluster(self._store, registry, self._node_times)
        start_controllers(cluster)
        bootstrap(cluster, self.ca_pem)
        address = self.endpoint.removeprefix("https://")
        kubelets = self._kubelet_context()
        logs, streams = LogProxy(cluster, kubelets), StreamProxy(cluster, kubelets)
        subresources = Subresources(cluster, self._tokens)
        return Application(cluster, self._identify, Discovery(registry, address), logs, streams, subresources)

    def _kubelet_context(self) -> ssl.SSLContext:
        """Context with a client certificate for kubelets; theirs are not checked (kube-apiserver's default)."""
        client = issue_certificate(
            self.authority, "kube-apiserver-kubelet-client", organization="system:masters", client=True
        )
        certificate, key = self._write_certificate("kubelet-client", client)
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.load_cert_chain(certificate, key)
        return context

    def _write_certificate(self, name: str, certificate: Certificate) -> tuple[str, str]:
        folder = Path(self._folder.name) if self._folder else Path()
        paths = folder / f"{name}.crt", folder / f"{name}.key"
        for path, text in zip(paths, (certificate.certificate_pem, certificate.key_pem), strict=True):
            path.touch(mode=0o600)
            path.write_text(text)
        return str(paths[0]), str(paths[1])


class _Server(uvicorn.Server):
    """Sets an event when it is up; the process handles signals (uvicorn does not, outside of the main thread)."""

    def __init__(self, config: uvicorn.Config, ready: threading.Event) -> None:
        super().__init__(config)
        self._ready = ready

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._ready.set()

    def hurry(self) -> None:
        """Close connections without waiting: an idle TLS connection would take half a minute to shut down."""
        self.force_exit = True


def _listen(host: str, port: int) -> socket.socket:
    # With the protocol named, asyncio switches Nagle's algorithm off; without it every answer takes 40 ms.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(_BACKLOG)
    except OSError as fault:
        listener.close()
        if fault.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} on {host} is in use by another program: choose another port, or 0 for a free one"
            ) from None
        raise
    return listener
