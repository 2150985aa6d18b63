"""The real client against a small HTTP server on loopback."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from tests.waiting import PATIENCE
from trainflow.client.observe.cluster import KubernetesPods
from trainflow.errors import ClusterUnavailable
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.connection import from_kubeconfig
from trainflow.kubernetes.faults import KubeconfigInvalid, NotFound


class Server(ThreadingHTTPServer):
    """Answers as a Kubernetes API server would; keeps what it was asked."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, list[str]], str | None]] = []
        self.hold = threading.Event()
        self.chunks: list[bytes] = []
        self.holds_open = False
        self.is_cut = False


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query)
        self.server.asked.append((parts.path, query, self.headers.get("Authorization")))
        if parts.path.endswith("/gone/log"):
            self._answer(404, {"kind": "Status", "code": 404})
        elif "watch" in query or parts.path.endswith("/log"):
            self._stream()
        else:
            self._answer(200, {"kind": "PodList", "metadata": {"resourceVersion": "7"}, "items": []})

    def _answer(self, status: int, body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in self.server.chunks:
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            self.wfile.flush()
        if self.server.holds_open:
            self.server.hold.wait(timeout=PATIENCE)
        if self.server.is_cut:
            self.close_connection = True
            self.connection.close()
        else:
            self.wfile.write(b"0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.hold.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def pods(server: Server, tmp_path: Path) -> KubernetesPods:
    kubeconfig = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{server.server_port}"}}],
        "users": [{"name": "u", "user": {"token": "secret"}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(kubeconfig))
    return KubernetesPods(KubernetesApi(from_kubeconfig(path)), "training")


def test_a_list_is_requested_with_the_kubeconfigs_token(server: Server, pods: KubernetesPods) -> None:
    assert pods.list_pods("trainflow/run=r")["metadata"]["resourceVersion"] == "7"

    path, query, authorization = server.asked[0]
    assert path == "/api/v1/namespaces/training/pods"
    assert query == {"labelSelector": ["trainflow/run=r"]}
    assert authorization == "Bearer secret"


def test_a_log_is_followed_from_a_second_on_with_stamps(server: Server, pods: KubernetesPods) -> None:
    list(pods.pod_log("p", "main", since="2026-11-21T09:30:00Z", follow=True))

    path, query, _ = server.asked[0]
    assert path == "/api/v1/namespaces/training/pods/p/log"
    assert query == {
        "timestamps": ["true"],
        "follow": ["true"],
        "container": ["main"],
        "sinceTime": ["2026-11-21T09:30:00Z"],
    }


def test_lines_are_put_together_across_chunks_and_only_a_line_feed_ends_one(
    server: Server, pods: KubernetesPods
) -> None:
    text = "a \u2192 b\n50%\r100%\nlast"
    raw = text.encode()
    server.chunks = [raw[:3], raw[3:4], raw[4:13], raw[13:]]

    lines = list(pods.pod_log("p", None, since=None, follow=False))

    assert lines == ["a \u2192 b\n", "50%\r100%\n", "last"]


def test_a_connection_that_breaks_is_an_error_after_its_whole_lines(server: Server, pods: KubernetesPods) -> None:
    server.chunks, server.is_cut = [b"whole\nhal"], True
    got = []

    with pytest.raises(ClusterUnavailable, match="broke off"):
        for line in pods.pod_log("p", None, since=None, follow=True):
            got.append(line)

    assert got == ["whole\n"]


def test_a_missing_pod_is_reported_with_its_status(pods: KubernetesPods) -> None:
    with pytest.raises(NotFound) as refused:
        pods.pod_log("gone", None, since=None, follow=True)

    assert refused.value.status == 404


def test_a_silent_stream_can_be_closed_from_another_thread(server: Server, pods: KubernetesPods) -> None:
    server.chunks, server.holds_open = [b"first\n"], True
    stream = pods.pod_log("p", None, since=None, follow=True)
    lines = iter(stream)
    assert next(lines) == "first\n"
    reader = threading.Thread(target=lambda: _drain(lines))
    reader.start()

    stream.close()

    reader.join(timeout=PATIENCE)
    assert not reader.is_alive()


def _drain(lines: Iterator[str]) -> None:
    with pytest.raises(ClusterUnavailable):
        list(lines)


def test_a_server_that_is_not_there_is_said_plainly(tmp_path: Path, server: Server, pods: KubernetesPods) -> None:
    server.shutdown()
    server.server_close()

    with pytest.raises(ClusterUnavailable, match="did not answer"):
        pods.list_pods("a=b")


def test_a_kubeconfig_that_is_not_there_is_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(KubeconfigInvalid, match=r"kubeconfig '.*missing' cannot be used"):
        from_kubeconfig(tmp_path / "missing")
