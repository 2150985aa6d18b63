"""A queue of a controller goes on after an object that it cannot read."""

from __future__ import annotations

import asyncio

import pytest
from kubetwin.controllers import work
from kubetwin.controllers.work import WorkQueue


def test_an_object_that_cannot_be_read_is_reported_and_tried_again_and_the_others_are_handled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(work, "RETRY_SECONDS", 0.01)
    handled: list[str] = []

    async def run() -> None:
        done = asyncio.Event()

        def reconcile(key: str) -> None:
            handled.append(key)
            if handled.count("bad") == 3:
                done.set()
            if key == "bad":
                raise KeyError("spec")

        queue = WorkQueue(reconcile)
        for key in ("bad", "good"):
            queue.add(key)
        await asyncio.wait_for(done.wait(), 20)

    asyncio.run(run())
    assert handled[:2] == ["bad", "good"]
    assert handled.count("good") == 1
    assert sum("KeyError" in message for message in caplog.messages) == 1
