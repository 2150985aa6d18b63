"""Events of a node: repeated ones are counted up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from kubetwin.client import RequestRefused
from kubetwin.node.events import EventRecorder

POD = {"metadata": {"name": "p", "namespace": "ns", "uid": "u"}, "spec": {}}


class Api:
    """Keeps the events that are sent."""

    def __init__(self) -> None:
        self.events: dict[str, dict[str, Any]] = {}

    def create(self, path: str, body: Mapping[str, Any]) -> None:
        self.events[f"{path}/{body['metadata']['name']}"] = dict(body)

    def patch(self, path: str, body: Mapping[str, Any]) -> None:
        if path not in self.events:
            raise RequestRefused(404, "not found")
        self.events[path] |= body


def recorded(api: Api, *messages: str) -> list[tuple[str, int]]:
    recorder = EventRecorder(api, "node")  # type: ignore[arg-type]
    recorder.start()
    for message in messages:
        recorder.normal(POD, "Pulled", message, "c")
    recorder.stop()
    return [(event["message"], event["count"]) for event in api.events.values()]


def test_an_event_that_is_repeated_is_counted_up() -> None:
    assert recorded(Api(), "a", "b", "a", "a") == [("a", 3), ("b", 1)]


def test_an_event_whose_time_to_live_is_over_is_made_again() -> None:
    class Forgetful(Api):
        def patch(self, path: str, body: Mapping[str, Any]) -> None:
            self.events.clear()
            super().patch(path, body)

    assert recorded(Forgetful(), "a", "a") == [("a", 1)]


def test_an_event_that_cannot_be_sent_is_reported_and_the_next_one_is_sent(caplog: pytest.LogCaptureFixture) -> None:
    class Picky(Api):
        def create(self, path: str, body: Mapping[str, Any]) -> None:
            if body["message"] == "bad":
                raise TypeError("not JSON")
            super().create(path, body)

    assert recorded(Picky(), "bad", "good") == [("good", 1)]
    assert caplog.messages == ["unexpected error in events of pods: TypeError: not JSON"]
