"""Logs that no observer writes are fetched from the place of the run when they are opened."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from recorded_runs import recorded
from starlette.testclient import TestClient

from tests.fakes.replayed_place import ReplayedDeployment
from tests.wording import wording
from trainflow.client.place import LogNotFound, LogRequest
from trainflow.page.app import PageApp
from trainflow.page.fetched import FetchedLogs, OpenLog
from trainflow.page.library import RunLibrary

RUN = recorded("succeeded")


class Place:
    """A place with logs, and what was asked of it."""

    def __init__(self, lines: Callable[[LogRequest], Iterator[str]]) -> None:
        self._lines = lines
        self.asked: list[LogRequest] = []

    def log(self, run_id: str, request: LogRequest) -> Iterator[str]:
        self.asked.append(request)
        return self._lines(request)


def two_lines(request: LogRequest) -> Iterator[str]:
    request.notify("These are the last lines.")
    return iter(["one", "two ü"])


@pytest.fixture
def closing() -> Iterator[list[FetchedLogs]]:
    opened: list[FetchedLogs] = []
    yield opened
    for logs in opened:
        logs.close()


def whole(logs: FetchedLogs, name: str, *, follow: bool = False) -> OpenLog:
    """The log when everything has been fetched."""
    deadline = time.monotonic() + 10
    while (log := logs.open(name, follow=follow)).is_growing:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return log


def test_a_pods_log_is_fetched_once_with_what_there_is_to_say_of_it(closing: list[FetchedLogs]) -> None:
    place = Place(two_lines)
    logs = FetchedLogs(place, "a-1")
    closing.append(logs)
    log = whole(logs, "a-1-training-1-3-x")
    assert (log.path.read_text(), log.note) == ("one\ntwo ü\n", "These are the last lines.")
    assert whole(logs, "a-1-training-1-3-x") == log
    assert [(asked.pod, asked.follow) for asked in place.asked] == [("a-1-training-1-3-x", False)]
    logs.close()
    assert not log.path.exists()


def test_a_rank_is_asked_for_by_its_number(closing: list[FetchedLogs]) -> None:
    place = Place(two_lines)
    closing.append(FetchedLogs(place, "a-1"))
    whole(closing[0], "rank 300", follow=True)
    assert [(asked.pod, asked.rank, asked.follow) for asked in place.asked] == [(None, 300, True)]


def test_a_log_that_goes_on_shows_what_has_come(closing: list[FetchedLogs]) -> None:
    more = threading.Event()

    def lines(_request: LogRequest) -> Iterator[str]:
        yield "one"
        more.wait(10)
        yield "two"

    logs = FetchedLogs(Place(lines), "a-1")
    closing.append(logs)
    while not (log := logs.open("p", follow=False)).path.exists() or not log.path.read_text():
        time.sleep(0.01)
    assert (log.path.read_text(), log.is_growing, log.is_behind) == ("one\n", True, True)
    more.set()
    assert whole(logs, "p").path.read_text() == "one\ntwo\n"


def test_a_log_that_cannot_be_fetched_says_why_and_is_tried_again_later(
    closing: list[FetchedLogs], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_request: LogRequest) -> Iterator[str]:
        raise LogNotFound("CloudWatch Logs has no line of it.")

    place = Place(refused)
    logs = FetchedLogs(place, "a-1")
    closing.append(logs)
    assert whole(logs, "p").note == "CloudWatch Logs has no line of it."
    whole(logs, "p")
    assert len(place.asked) == 1
    monkeypatch.setattr("trainflow.page.fetched.RETRY_SECONDS", 0.0)
    whole(logs, "p")
    assert len(place.asked) == 2


def test_a_log_that_meets_an_unexpected_exception_says_so(closing: list[FetchedLogs]) -> None:
    def broken(_request: LogRequest) -> Iterator[str]:
        yield "one"
        raise KeyError("logs")

    logs = FetchedLogs(Place(broken), "a-1")
    closing.append(logs)
    log = whole(logs, "p")
    while not log.note:  # the note follows the end
        log = logs.open("p", follow=False)
    assert log.note == "The log could not be fetched: unexpected KeyError: 'logs'."
    assert log.path.read_text() == "one\n"


def test_of_a_very_long_log_the_beginning_is_fetched(
    closing: list[FetchedLogs], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainflow.page.fetched.MAX_BYTES", 1024**2)
    logs = FetchedLogs(Place(lambda _request: iter(["x" * 1023] * 5000)), "a-1")
    closing.append(logs)
    log = whole(logs, "p")
    assert log.path.stat().st_size == 1024**2
    assert log.note == wording("fetched.of_a_very_long_log_the_beginning_is_fetched", "`trainflow logs`")


def test_the_page_answers_with_the_log_of_a_rank_that_is_not_followed(tmp_path: Path) -> None:
    place = ReplayedDeployment([RUN], polls=20, folder=tmp_path)
    with RunLibrary(folder=tmp_path / "out", place=place) as library:
        page = TestClient(PageApp(library, form_token="form").asgi)
        assert 'id="rank-form"' in page.get(f"/runs/{RUN.run_id}").text
        address = f"/runs/{RUN.run_id}/logs/rank 40"
        answers = [page.get(address).json()]
        while answers[-1]["isGrowing"]:
            answers.append(page.get(address).json())
        assert answers[-1] == {
            "lines": [f"40 of {RUN.run_id}", "a line with a Word"],
            "offset": len(f"40 of {RUN.run_id}\na line with a Word\n"),
            "isWhole": True,
            "note": "These are the last lines that it has kept.",
            "isGrowing": False,
            "isBehind": False,
        }
        assert page.get(address, params={"search": "WORD"}).json()["found"] == [[2, "a line with a Word"]]
        assert page.get(f"/runs/{RUN.run_id}/logs/..%2Fsecret").status_code == 404
