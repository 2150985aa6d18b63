from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest
from kubetwin.client import ApiClient, ApiUnreachable
from kubetwin.node.pod_watch import PodWatch


def pod(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": name, "resourceVersion": str(version)}}


def event(kind: str, name: str, version: int) -> dict[str, Any]:
    return {"type": kind, "object": pod(name, version)}


class FakeWatch(list[dict[str, Any]]):
    """Events that come at once, before the watch ends."""

    def close(self) -> None:
        """Close no connection: none is open."""


class FakeApi:
    """Plays a script: each entry answers one request, an exception by raising it."""

    def __init__(self, *script: dict[str, Any] | FakeWatch | Exception) -> None:
        self.requests: list[str] = []
        self.played = threading.Event()
        self._script: Iterator[dict[str, Any] | FakeWatch | Exception] = iter(script)

    def get(self, path: str, **query: str) -> Any:
        return self._answer("list")

    def watch(self, path: str, **query: str) -> Any:
        return self._answer(f"watch {query['resourceVersion']}")

    def _answer(self, request: str) -> Any:
        answer = next(self._script, None)
        if answer is None:
            self.played.set()
            raise ApiUnreachable("the script is over")
        self.requests.append(request)
        if isinstance(answer, Exception):
            raise answer
        return answer


class RecordingObserver:
    """An observer that records its calls."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    def pods_listed(self, pods: list[dict[str, Any]]) -> None:
        self.seen.append("listed " + " ".join(pod["metadata"]["name"] for pod in pods))

    def pod_changed(self, pod: dict[str, Any]) -> None:
        self.seen.append(f"changed {pod['metadata']['name']}")

    def pod_deleted(self, pod: dict[str, Any]) -> None:
        self.seen.append(f"deleted {pod['metadata']['name']}")

    def reconnected(self) -> None:
        self.seen.append("reconnected")


def play(
    *script: dict[str, Any] | FakeWatch | Exception, observer: RecordingObserver | None = None
) -> tuple[list[str], list[str]]:
    """The requests, and the calls of the observer, while the script lasted."""
    api, observer = FakeApi(*script), observer or RecordingObserver()
    watch = PodWatch(cast(ApiClient, api), "node-a", observer)
    watch.start()
    assert api.played.wait(30)
    watch.stop()
    return api.requests, observer.seen


LIST = {"metadata": {"resourceVersion": "10"}, "items": [pod("a", 5)]}


def test_changes_arrive_in_order_and_a_watch_that_ends_continues_where_it_stopped() -> None:
    first = FakeWatch([event("ADDED", "b", 11), event("BOOKMARK", "", 15)])
    second = FakeWatch([event("MODIFIED", "b", 16), event("DELETED", "b", 17)])
    requests, seen = play(LIST, first, second)
    assert requests == ["list", "watch 10", "watch 15"]
    assert seen[:4] == ["listed a", "changed b", "changed b", "deleted b"]


def test_a_watch_that_is_too_old_is_followed_by_a_new_list() -> None:
    gone = FakeWatch([{"type": "ERROR", "object": {"code": 410}}])
    requests, seen = play(LIST, gone, LIST)
    assert requests == ["list", "watch 10", "list"]
    assert seen[:2] == ["listed a", "listed a"]


def test_the_node_registers_again_before_the_list_when_a_server_returns() -> None:
    requests, seen = play(LIST, ApiUnreachable("away"), ApiUnreachable("still"), LIST)
    assert requests == ["list", "watch 10", "list", "list"]
    assert seen[:4] == ["listed a", "reconnected", "reconnected", "listed a"]


class PickyObserver(RecordingObserver):
    """An observer that cannot read some pods."""

    def pod_changed(self, pod: dict[str, Any]) -> None:
        if pod["metadata"]["name"] == "bad":
            raise KeyError("spec")
        super().pod_changed(pod)


def test_a_pod_that_cannot_be_read_is_reported_and_those_behind_it_are_seen(caplog: pytest.LogCaptureFixture) -> None:
    events = FakeWatch([event("ADDED", "bad", 11), event("ADDED", "good", 12)])
    requests, seen = play(LIST, events, observer=PickyObserver())
    assert requests == ["list", "watch 10"]
    assert seen[:2] == ["listed a", "changed good"]
    assert "unexpected error in a change of a pod: KeyError: 'spec'" in caplog.messages


def test_a_watch_goes_on_after_an_unexpected_exception(caplog: pytest.LogCaptureFixture) -> None:
    requests, seen = play(ValueError("not JSON"), LIST, FakeWatch([event("ADDED", "b", 11)]))
    assert requests == ["list", "list", "watch 10"]
    assert seen[:2] == ["listed a", "changed b"]
    assert any("ValueError: not JSON" in message for message in caplog.messages)


class SlowWatch(FakeWatch):
    """A watch that opens when the test allows it, and has no event until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.requested, self.allowed, self.closed = threading.Event(), threading.Event(), threading.Event()

    def __iter__(self) -> Iterator[dict[str, Any]]:
        assert self.closed.wait(30)
        return iter(())

    def close(self) -> None:
        self.closed.set()


def test_a_watch_that_is_opened_during_the_stop_is_ended() -> None:
    slow, api = SlowWatch(), FakeApi(LIST)

    def open_slowly(path: str, **query: str) -> SlowWatch:
        slow.requested.set()
        assert slow.allowed.wait(30)
        return slow

    api.watch = open_slowly  # type: ignore[method-assign]
    watch = PodWatch(cast(ApiClient, api), "node-a", RecordingObserver())
    watch.start()
    assert slow.requested.wait(30)
    stop = threading.Thread(target=watch.stop)
    stop.start()
    assert watch._stopping.wait(30)
    slow.allowed.set()
    assert slow.closed.wait(30)
    stop.join()
