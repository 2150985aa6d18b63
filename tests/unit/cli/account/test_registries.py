"""Questions to registries, answered as registries answer them; what comes from outside may be anything."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from tests.wording import wording
from trainflow.cli.account.facts import Unknown
from trainflow.cli.account.needs import Artifact
from trainflow.cli.account.registries import (
    Reference,
    Registries,
    Unreadable,
    Web,
    chart_versions,
    parse_reference,
    parse_token,
    token_url,
)

DIGEST = "sha256:" + "0" * 64
IMAGE = Artifact("an image", "public.ecr.aws/neuron/chart:1.10.0")
CHART = Artifact("a chart", "https://charts.example.com/", "volcano", "1.15.2")
INDEX = b"apiVersion: v1\nentries:\n  volcano:\n  - version: 1.15.2\n    created: 2026-99-99\n  - version: v1.10\n"
CHALLENGE = 'Bearer realm="https://public.ecr.aws/token/",service="public.ecr.aws",scope="aws"'

Answers = Mapping[str, tuple[int, Mapping[str, str], bytes]]


def registries(answers: Answers) -> Registries:
    """A web that knows some URLs; one that asks for a manifest with the token `t` finds it below `token:`."""

    def get(url: str, headers: Mapping[str, str]) -> tuple[int, Mapping[str, str], bytes]:
        if headers.get("Authorization") == "Bearer t":
            url = f"token:{url}"
        if url not in answers:
            raise urllib3.exceptions.MaxRetryError(
                urllib3.HTTPSConnectionPool("x"), url, urllib3.exceptions.ProtocolError("closed")
            )
        return answers[url]

    return Registries(get)


MANIFEST = "https://public.ecr.aws/v2/neuron/chart/manifests/1.10.0"
TOKEN = "https://public.ecr.aws/token/?scope=aws&service=public.ecr.aws"


@pytest.mark.parametrize(("status", "there"), [(200, True), (404, False)])
def test_an_anonymous_token_is_requested_where_the_registry_names(status: int, there: bool) -> None:
    answers = {
        MANIFEST: (401, {"WWW-Authenticate": CHALLENGE}, b""),
        TOKEN: (200, {}, b'{"token": "t"}'),
        f"token:{MANIFEST}": (status, {}, b"{}"),
    }
    assert registries(answers).has(IMAGE) is there


@pytest.mark.parametrize(("status", "there"), [(200, True), (404, False)])
def test_a_registry_that_wants_no_token_is_believed(status: int, there: bool) -> None:
    assert registries({MANIFEST: (status, {}, b"")}).has(IMAGE) is there


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ({}, "public.ecr.aws did not answer (ProtocolError)"),
        ({MANIFEST: (503, {}, b"")}, "public.ecr.aws answered 503"),
        (
            {MANIFEST: (401, {}, b"")},
            wording("registries.a_registry_that_does_not_answer_is_unknown", "public.ecr.aws"),
        ),
        (
            {MANIFEST: (401, {"WWW-Authenticate": CHALLENGE}, b""), TOKEN: (403, {}, b"")},
            "public.ecr.aws gave no token (403)",
        ),
        (
            {MANIFEST: (401, {"WWW-Authenticate": CHALLENGE}, b""), TOKEN: (200, {}, b"<html>")},
            "the registry's token cannot be read",
        ),
    ],
)
def test_a_registry_that_does_not_answer_is_unknown(answers: Answers, reason: str) -> None:
    said = registries(answers).has(IMAGE)
    assert isinstance(said, Unknown) and said.reason == reason


def test_a_chart_is_looked_up_in_its_repositorys_index() -> None:
    web = registries({"https://charts.example.com/index.yaml": (200, {}, INDEX)})
    assert web.has(CHART) is True
    assert web.has(Artifact("a chart", CHART.reference, "volcano", "1.10")) is True  # Helm takes v1.10 for it
    assert web.has(Artifact("a chart", CHART.reference, "volcano", "1.15.3")) is False
    assert web.has(Artifact("a chart", CHART.reference, "other", "1.15.2")) is False
    gone = registries({"https://charts.example.com/index.yaml": (404, {}, b"")})
    assert gone.has(CHART) == Unknown("https://charts.example.com/ answered 404")


@pytest.mark.parametrize(
    ("text", "reference"),
    [
        ("ghcr.io/kubeflow/operator:v1", Reference("ghcr.io", "kubeflow/operator", "v1")),
        ("localhost:5000/a/b", Reference("localhost:5000", "a/b", "latest")),
        ("python:3.12", Reference("registry-1.docker.io", "library/python", "3.12")),
        ("team/image", Reference("registry-1.docker.io", "team/image", "latest")),
        (f"public.ecr.aws/a/b:c@{DIGEST}", Reference("public.ecr.aws", "a/b", DIGEST)),
    ],
)
def test_an_images_name_is_read_as_docker_reads_it(text: str, reference: Reference) -> None:
    assert parse_reference(text) == reference


@given(st.text())
def test_any_text_is_a_reference_or_refused(text: str) -> None:
    with suppress(Unreadable):
        found = parse_reference(text)
        assert found.url.startswith("https://") and " " not in found.url


@given(
    st.one_of(
        st.binary(),
        st.text().map(str.encode),
        st.recursive(
            st.none() | st.text() | st.integers(),
            lambda inner: (
                st.lists(inner) | st.dictionaries(st.sampled_from(["entries", "volcano", "version", "token"]), inner)
            ),
        ).map(lambda value: json.dumps(value).encode()),
    )
)
def test_any_body_is_read_or_refused(body: bytes) -> None:
    with suppress(Unreadable):
        assert all(isinstance(version, str) for version in chart_versions(body, "volcano"))
    with suppress(Unreadable):
        assert parse_token(body).isprintable()


@given(st.one_of(st.text(), st.from_regex(r'Bearer realm="https://[^"]*"(,(service|scope)="[^"]*")*', fullmatch=True)))
def test_a_token_is_requested_over_tls_only(challenge: str) -> None:
    with suppress(Unreadable):
        assert token_url(challenge, Reference("x.io", "a", "b")).startswith("https://")


class _Pages(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if self.path == "/moved":
            self.send_response(307)
            self.send_header("Location", "/here")
        else:
            self.send_response(200 if self.path == "/here" else 404)
        self.send_header("Content-Length", "2" if self.path == "/here" else "0")
        self.end_headers()
        if self.path == "/here":
            self.wfile.write(b"ok")

    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Pages) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_redirects_are_followed_and_a_status_is_an_answer(site: str) -> None:
    web = Web()
    status, _, body = web.get(f"{site}/moved", {})
    assert (status, body) == (200, b"ok")
    assert web.get(f"{site}/nothing", {})[0] == 404


def test_a_host_that_refuses_is_said_to_be_silent() -> None:
    closed = Artifact("a chart", "http://127.0.0.1:9/charts", "volcano", "1.15.2")
    said = Registries().has(closed)
    assert isinstance(said, Unknown) and said.reason == "127.0.0.1 did not answer (NewConnectionError)"
