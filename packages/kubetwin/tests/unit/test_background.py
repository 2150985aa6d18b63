"""Every unexpected exception of background work is reported, once for each kind."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from kubetwin.background import Worker, later, report, submit, surviving


def broken(*arguments: object) -> None:
    raise ValueError(*arguments)


def test_a_worker_reports_its_exception_and_calls_its_owner(caplog: pytest.LogCaptureFixture) -> None:
    owner: list[BaseException] = []
    worker = Worker(broken, "no entry", name="reader", on_error=owner.append)
    worker.start()
    worker.join(20)
    assert [str(error) for error in owner] == ["no entry"]
    assert caplog.messages == ["unexpected error in thread reader: ValueError: no entry"]
    assert caplog.records[0].exc_info is not None


def test_a_worker_that_exits_is_reported_too(caplog: pytest.LogCaptureFixture) -> None:
    """Python itself says nothing about a thread that SystemExit ends."""

    def leave() -> None:
        raise SystemExit(1)

    worker = Worker(leave, name="leaver")
    worker.start()
    worker.join(20)
    assert caplog.messages == ["unexpected error in thread leaver: SystemExit: 1"]


def test_a_timer_reports_its_exception(caplog: pytest.LogCaptureFixture) -> None:
    timer = later(0, broken, "late", name="the end of an outage")
    timer.start()
    timer.join(20)
    assert timer.daemon
    assert caplog.messages == ["unexpected error in the end of an outage: ValueError: late"]


def test_a_task_of_a_pool_reports_its_exception_although_nobody_reads_its_future(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with ThreadPoolExecutor(1) as pool:
        submit(pool, broken, "in a pool", name="a delivery")
        assert submit(pool, max, 1, 2, name="a sum").result() == 2
    assert caplog.messages == ["unexpected error in a delivery: ValueError: in a pool"]


def test_a_task_that_was_cancelled_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    begun, goes_on = threading.Event(), threading.Event()

    def hold() -> None:
        begun.set()
        goes_on.wait(20)

    with ThreadPoolExecutor(1) as pool:
        submit(pool, hold, name="first")
        assert begun.wait(20)
        second = submit(pool, broken, name="second")
        assert second.cancel()
        goes_on.set()
    assert caplog.messages == []


def test_a_turn_that_fails_is_reported_and_says_so(caplog: pytest.LogCaptureFixture) -> None:
    assert surviving(int, "1", name="a number")
    assert not surviving(int, "one", name="a number")
    assert len(caplog.messages) == 1


def test_each_kind_is_reported_once_and_then_counted(caplog: pytest.LogCaptureFixture) -> None:
    for number in range(120):
        surviving(broken, f"entry {number}", name="a counted loop")
    report("a counted loop", KeyError("other"))
    assert caplog.messages == [
        "unexpected error in a counted loop: ValueError: entry 0",
        "unexpected error in a counted loop, 10 times by now: ValueError: entry 9",
        "unexpected error in a counted loop, 100 times by now: ValueError: entry 99",
        "unexpected error in a counted loop: KeyError: 'other'",
    ]
