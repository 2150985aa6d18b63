"""Commands in containers, through a server that speaks the websocket protocol of the Kubernetes API."""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import parse_qs, urlsplit

import pytest
from kubernetes import client

from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.commands import exit_code, handshake_message
from trainflow.kubernetes.faults import CommandNotRun

ACCEPT = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""RFC 6455, section 1.3."""
OUT, ERR, STATUS = b"\x01", b"\x02", b"\x03"
"""Channels of the protocol v4.channel.k8s.io."""
FAILED = {"status": "Failure", "details": {"causes": [{"reason": "ExitCode", "message": "7"}]}}


@contextmanager
def server(frames: Sequence[bytes] | None, *, refusal: bytes = b"") -> Iterator[tuple[KubernetesApi, list[str]]]:
    """A cluster that answers one exec with these frames, or with a refusal; and the paths that it was asked for."""
    listening, asked = socket.create_server(("127.0.0.1", 0)), list[str]()

    def serve() -> None:
        connection, _ = listening.accept()
        with connection:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                head += connection.recv(4096)
            lines = head.decode().split("\r\n")
            asked.append(lines[0].split()[1])
            fields = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines[1:])}
            if frames is None:
                connection.sendall(refusal)
                return
            key = base64.b64encode(hashlib.sha1(fields["sec-websocket-key"].encode() + ACCEPT).digest()).decode()
            connection.sendall(
                "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                f"Sec-WebSocket-Accept: {key}\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n\r\n".encode()
            )
            sent = b"".join(bytes([0x82, len(frame)]) + frame for frame in frames)
            connection.sendall(sent + bytes([0x88, 0]))
            connection.recv(4096)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    settings = client.Configuration()
    settings.host, settings.proxy = f"http://127.0.0.1:{listening.getsockname()[1]}", None
    try:
        yield KubernetesApi(client.ApiClient(settings), read_seconds=5), asked
    finally:
        thread.join(10)
        listening.close()


def recorded() -> tuple[list[tuple[bool, bytes]], Callable[[bool, bytes], None]]:
    printed: list[tuple[bool, bytes]] = []
    return printed, lambda is_error, text: printed.append((is_error, text))


@pytest.mark.parametrize("channels", [(OUT, ERR, OUT), (ERR, OUT, ERR), (ERR, ERR, OUT)])
def test_what_a_command_prints_comes_in_its_order_with_its_exit_code(channels: tuple[bytes, ...]) -> None:
    texts = (b"one\n", b"\xff odd\n", b"two\n")
    frames = [channel + text for channel, text in zip(channels, texts, strict=True)]
    printed, write = recorded()
    with server([OUT, *frames, STATUS + json.dumps(FAILED).encode()]) as (api, asked):  # kubelets begin with empty ones
        assert api.run_command("training", "bert-0", "training", ["df", "-h", "/runs dir"], write) == 7
    assert printed == [(channel == ERR, text) for channel, text in zip(channels, texts, strict=True)]
    assert urlsplit(asked[0]).path == "/api/v1/namespaces/training/pods/bert-0/exec"
    assert parse_qs(urlsplit(asked[0]).query) == {
        "command": ["df", "-h", "/runs dir"],
        "container": ["training"],
        "stdout": ["True"],
        "stderr": ["True"],
    }


def test_a_refusal_is_the_servers_own_sentence() -> None:
    said = 'pods "bert-0" is forbidden: User "me" cannot create resource "pods/exec"'
    body = json.dumps({"kind": "Status", "message": said}).encode()
    head = f"HTTP/1.1 403 Forbidden\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with server(None, refusal=head + body) as (api, _), pytest.raises(CommandNotRun) as refused:
        api.run_command("training", "bert-0", None, ["true"], lambda *_: None)
    assert str(refused.value) == f"The pod bert-0 does not take the command: {said}."


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (b"", "the connection ended before the command did"),
        (b'{"status": "Failure", "message": "exec: \\"nope\\": not found in $PATH"}', "not found in"),
        (b'{"status": "Failure"}', "the cluster does not say why"),
    ],
)
def test_a_command_that_did_not_begin_has_no_exit_code(status: bytes, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        exit_code(status)


def test_a_message_that_is_no_answer_of_the_cluster_stays() -> None:
    assert handshake_message("Connection to remote host was lost.") == "Connection to remote host was lost."
    refused = "Handshake status 502 Bad Gateway"
    assert handshake_message(f"{refused} -+-+- {{}} -+-+- b'<html>'") == f"{refused}."
    assert handshake_message(f"{refused} -+-+- {{}} -+-+- None") == f"{refused}."
    status = json.dumps({"kind": "Status", "message": "no such pod"}).encode()
    assert handshake_message(f"{refused} -+-+- {{}} -+-+- {status!r}") == "no such pod."
