"""A thread of the command hands its exception to its owner, and a watch goes on after an answer it cannot read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any, cast

import pytest

from trainflow.background import Worker, described
from trainflow.client.observe import pods
from trainflow.client.observe.pods import PodWatcher


@pytest.mark.parametrize("error", [ValueError("no number"), SystemExit(1), MemoryError()], ids=repr)
def test_the_owner_gets_the_exception(error: BaseException) -> None:
    def broken() -> None:
        raise error

    got: list[BaseException] = []
    worker = Worker(broken, name="reader", on_error=got.append)
    worker.start()
    worker.join(20)
    assert got == [error]


def test_an_exception_is_described_by_its_class_and_text() -> None:
    assert described(KeyError("spec")) == "unexpected KeyError: 'spec'"


class Stream:
    """A watch that ends when it is closed."""

    def __init__(self) -> None:
        self._closed = threading.Event()

    def close(self) -> None:
        self._closed.set()

    def __iter__(self) -> Iterator[str]:
        self._closed.wait(20)
        return iter(())


class Source:
    """A cluster whose first answer cannot be read."""

    def __init__(self) -> None:
        self.lists = 0
        self.watched = threading.Event()

    def list_pods(self, _selector: str) -> dict[str, Any]:
        self.lists += 1
        return {"items": [{}], "metadata": {}} if self.lists == 1 else {"metadata": {"resourceVersion": "7"}}

    def watch_pods(self, _selector: str, _version: str) -> Stream:
        self.watched.set()
        return Stream()


def test_an_answer_that_cannot_be_read_is_trouble_and_the_next_one_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pods, "RETRY_SECONDS", (0.01,))
    source = Source()
    watch = PodWatcher(cast(Any, source), "a-1", on_change=lambda _pod: None)
    watch.start()
    assert source.watched.wait(20)
    assert (watch.trouble or "").startswith("The pods cannot be read (unexpected KeyError: ")
    watch.stop()
    assert source.lists >= 2
