"""A loop of the twin goes on after a call that raises."""

from __future__ import annotations

import itertools
import threading

import pytest

from local.loop import Loop


def test_a_loop_survives_a_call_that_raises_and_reports_it_once(caplog: pytest.LogCaptureFixture) -> None:
    calls, enough = itertools.count(1), threading.Event()

    def poll() -> None:
        if next(calls) == 5:
            enough.set()
        raise ValueError("a bad entry")

    loop = Loop(poll, name="bad-loop", seconds=0.001)
    loop.start()
    assert enough.wait(20)
    loop.stop()
    assert caplog.messages[0] == "unexpected error in bad-loop: ValueError: a bad entry"
    assert sum(message == caplog.messages[0] for message in caplog.messages) == 1
    assert caplog.records[0].exc_info is not None
