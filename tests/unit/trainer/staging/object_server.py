"""A path-style S3 that answers ranged reads and listings, remembers what it was asked for, and misbehaves when told."""

from __future__ import annotations

import hashlib
import re
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

PROBE = 1
"""Bytes of the read that finds out how large an object is."""


class Read(NamedTuple):
    """A range that a client requested."""

    key: str
    start: int
    end: int


class ObjectServer:
    """One bucket, named `datasets`."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes | Path] = {}
        self.reads: list[Read] = []
        """Reads of the server, without the one byte that a client reads to learn an object's size."""
        self.misbehave: Callable[[Read, BaseHTTPRequestHandler], bool] = lambda _read, _handler: False
        """Called with every read before the server answers; returns True if it has answered itself."""
        self.authorized: list[bool] = []
        """Whether each request was signed."""
        self.redirects: dict[str, str] = {}
        self.url = ""

    def etag(self, key: str) -> str:
        content = self.objects[key]
        said = content if isinstance(content, bytes) else f"{content} {content.stat().st_mtime_ns}".encode()
        return f'"{hashlib.sha256(said).hexdigest()[:32]}"'

    def size(self, key: str) -> int:
        content = self.objects[key]
        return len(content) if isinstance(content, bytes) else content.stat().st_size

    def keys_read(self) -> set[str]:
        return {read.key for read in self.reads}

    def listing(self, prefix: str) -> str:
        entries = (
            f"<Contents><Key>{escape(key)}</Key><Size>{self.size(key)}</Size><ETag>{escape(self.etag(key))}</ETag></Contents>"
            for key in sorted(self.objects)
            if key.startswith(prefix)
        )
        return f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(entries)}</ListBucketResult>"


@contextmanager
def serving(server: ObjectServer, *, tls: ssl.SSLContext | None = None) -> Iterator[ObjectServer]:
    """Answer on a free port of loopback."""
    listener = _Listener(("127.0.0.1", 0), _handler(server))
    if tls is not None:
        listener.socket = tls.wrap_socket(listener.socket, server_side=True)
    server.url = f"{'https' if tls else 'http'}://127.0.0.1:{listener.server_port}"
    thread = threading.Thread(target=listener.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listener.shutdown()
        listener.server_close()
        thread.join()


def certificate(folder: Path) -> tuple[Path, ssl.SSLContext]:
    """A certificate for loopback that vouches for itself: its file, and what a server needs."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "loopback")])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    chain, private = folder / "server.pem", folder / "server.key"
    chain.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    private.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, private)
    return chain, context


class _Listener(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hangs up is none."""


def _handler(server: ObjectServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            server.authorized.append("Authorization" in self.headers)
            asked = urlsplit(self.path)
            key = unquote(asked.path).removeprefix("/datasets").removeprefix("/")
            if key in server.redirects:
                self.say(302, b"", {"Location": server.redirects[key]})
            elif not key:
                prefix = parse_qs(asked.query).get("prefix", [""])[0]
                self.say(200, server.listing(prefix).encode(), {"Content-Type": "application/xml"})
            elif key not in server.objects:
                self.refuse(404, "NoSuchKey")
            else:
                self.give(key)

        def give(self, key: str) -> None:
            found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
            size = server.size(key)
            start, end = (int(found[1]), min(int(found[2]) + 1, size)) if found else (0, size)
            if start >= size:
                self.refuse(416, "InvalidRange")
                return
            read = Read(key, start, end)
            if end - start > PROBE or size == PROBE:
                server.reads.append(read)
            if server.misbehave(read, self):
                return
            if self.headers.get("If-Match", server.etag(key)) != server.etag(key):
                self.refuse(412, "PreconditionFailed")
                return
            self.send_response(206 if found else 200)
            self.send_header("ETag", server.etag(key))
            self.send_header("Content-Length", str(end - start))
            if found:
                self.send_header("Content-Range", f"bytes {start}-{end - 1}/{size}")
            self.end_headers()
            content = server.objects[key]
            if isinstance(content, bytes):
                self.wfile.write(content[start:end])
            else:
                with content.open("rb") as file:
                    self.connection.sendfile(file, start, end - start)

        def refuse(self, status: int, code: str) -> None:
            self.say(status, f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode(), {})

        def say(self, status: int, body: bytes, headers: dict[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def hang_up(self) -> None:
            self.close_connection = True
            self.connection.shutdown(2)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler
