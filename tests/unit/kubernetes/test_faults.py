"""A cluster's refusals by name, and streams cut into lines."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubernetes import client
from urllib3.exceptions import ProtocolError

from trainflow.errors import ClusterAccessDenied, ClusterUnavailable
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.faults import AlreadyExists, Expired, NotFound, RequestRefused
from trainflow.kubernetes.lines import LONGEST_OBJECT_BYTES, complete_lines, split_lines


class Answering:
    """Stands in for `kubernetes.client.ApiClient`: raises, or gives a response of these chunks."""

    def __init__(self, answer: Exception | list[bytes]) -> None:
        self.answer = answer
        self.closed = self.released = False

    def call_api(self, *_arguments: Any, **_options: Any) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self

    @property
    def data(self) -> bytes:
        assert isinstance(self.answer, list)
        return b"".join(self.answer)

    def stream(self, _amount: int) -> Iterator[bytes]:
        assert isinstance(self.answer, list)
        yield from self.answer

    def release_conn(self) -> None:
        self.released = True

    def close(self) -> None:
        self.closed = True


def refused(status: int, body: str | None = None) -> client.ApiException:
    error = client.ApiException(status=status, reason="Reason")
    error.body = body
    return error


STATUS = json.dumps({"kind": "Status", "message": "pods 'x' is as it is"})


@pytest.mark.parametrize(
    ("answer", "fault", "sentence"),
    [
        (refused(404, STATUS), NotFound, "pods 'x' is as it is"),
        (refused(409, STATUS), AlreadyExists, "pods 'x' is as it is"),
        (refused(410), Expired, "410 Reason"),
        (refused(422, STATUS), RequestRefused, "pods 'x' is as it is"),
        (refused(401), ClusterAccessDenied, "The Kubernetes API refused: 401 Reason."),
        (refused(403, STATUS), ClusterAccessDenied, "The Kubernetes API refused: pods 'x' is as it is."),
        (refused(429), ClusterUnavailable, "The Kubernetes API answered 429 Reason."),
        (refused(503), ClusterUnavailable, "The Kubernetes API answered 503 Reason."),
        (refused(0), ClusterUnavailable, "The Kubernetes API did not answer: Reason."),
        (ProtocolError("cut"), ClusterUnavailable, "The Kubernetes API did not answer: cut."),
        (OSError("no route"), ClusterUnavailable, "The Kubernetes API did not answer: no route."),
        ([b'{"half": '], ClusterUnavailable, "The answer of the Kubernetes API broke off: "),
    ],
)
def test_a_refusal_has_a_name_and_the_servers_words(
    answer: Exception | list[bytes], fault: type[Exception], sentence: str
) -> None:
    with pytest.raises(fault) as raised:
        KubernetesApi(Answering(answer)).call("GET", "/api/v1/pods")
    assert type(raised.value) is fault
    assert str(raised.value).startswith(sentence)


@pytest.mark.parametrize(("body", "from_api_group"), [(STATUS, True), ("404 page not found\n", False), (None, False)])
def test_an_api_that_is_not_installed_is_told_from_an_object_that_is_not_there(
    body: str | None, from_api_group: bool
) -> None:
    with pytest.raises(NotFound) as raised:
        KubernetesApi(Answering(refused(404, body))).call("GET", "/apis/x/v1/y")
    assert raised.value.from_api_group is from_api_group


def test_what_is_not_there_is_found_as_none_and_is_deleted_already() -> None:
    api = KubernetesApi(Answering(refused(404, STATUS)))
    assert api.find("/api/v1/pods/x") is None
    api.delete("/api/v1/pods/x")


def test_a_stream_ends_with_the_chunk_at_which_its_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    answering = Answering([b"first\n", b"second\n", b"third\n"])
    now = iter([0.0, 1.0, 5.0])
    monkeypatch.setattr(time, "monotonic", lambda: next(now))
    stream = KubernetesApi(Answering(answering.answer)).log("/pods/p", container="c", follow=True, seconds=5)
    assert list(stream) == ["first\n", "second\n"]


def test_a_connection_is_kept_after_a_whole_answer_alone() -> None:
    whole, part = Answering([b"a\n", b"b\n"]), Answering([b"a\n", b"b\n"])
    list(KubernetesApi(whole).log("/pods/p", container="c"))
    assert (whole.released, whole.closed) == (True, True)
    lines = iter(KubernetesApi(part).log("/pods/p", container="c"))
    next(lines)
    lines.close()  # type: ignore[attr-defined]
    assert (part.released, part.closed) == (False, True)


def test_a_line_without_an_end_is_held_in_part_only() -> None:
    """A program may write one, and a person follows its log."""
    endless = [b"x" * 2**20] * 20
    held, following = KubernetesApi(Answering([*endless, b"x\nnext\n"])).log("/pods/p", container="c")
    assert held == "x" * LONGEST_OBJECT_BYTES + "\n"
    assert following == "next\n"


@given(st.lists(st.binary(max_size=9), max_size=9))
def test_lines_are_the_text_wherever_it_is_cut(chunks: list[bytes]) -> None:
    lines = list(split_lines(chunks))
    assert b"".join(lines) == b"".join(chunks)
    assert all(line.endswith(b"\n") for line in lines[:-1])
    assert list(complete_lines(chunks)) == [line[:-1] for line in lines if line.endswith(b"\n")]
