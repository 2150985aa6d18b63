"""Measures the time to wait for the page of a run with a million steps, in a real Chromium.

First paint counts from the request to the page's first content; the curves come after it, the first time with the
reading of all steps. An update is what happens each time new steps come: the request for the curves, the server's
answer, and their drawing, as the page's own script measures it. The server's processor time is given beside it: it
distinguishes a slow page from a busy machine, and includes the long run's own steps and the updates of the page's other
parts.
"""

from __future__ import annotations

import importlib
import math
import os
import shutil
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.result import BenchmarkFailed, Result, this_machine
from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.page.library import RunLibrary
from trainflow.page.server import PageServer
from trainflow.workflow.run_record import RunStatus

NUM_STEPS = 1_000_000
NUM_LINES = 10_000
RUN_ID = "long-0123456789ab"

UPDATES = 30
"""Updates whose median is the figure."""

MAX_FIRST_PAINT_SECONDS, MAX_UPDATE_SECONDS = 1.0, 0.05
"""Limits for the page."""

PATIENCE_SECONDS = 120.0

STARTED_AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

NO_MORE: Mapping[str, float] = {}
"""The further figures of every step."""


class LongRun:
    """Snapshots of a run that has logged very many steps, and logs some more before each snapshot."""

    def __init__(self, num_steps: int, *, run_id: str = RUN_ID, new_steps: int = 10) -> None:
        self._run_id, self._new_steps = run_id, new_steps
        self._steps = tuple(_step(number) for number in range(1, num_steps + 1))
        self._taken = 0

    def snapshot(self) -> RunState:
        """The run as it is now."""
        if self._taken:
            first = len(self._steps) + 1
            self._steps += tuple(_step(number) for number in range(first, first + self._new_steps))
        self._taken += 1
        return RunState(
            run_id=self._run_id,
            status=RunStatus.RUNNING,
            observed_at=self._steps[-1].logged_at,
            execution=self._run_id,
            started_at=STARTED_AT,
            steps=self._steps,
            total_steps=2 * len(self._steps),
            spec={"name": "long", "compute": {"instance_type": "trn1.32xlarge", "num_nodes": 2}},
        )


def _step(number: int) -> Step:
    noise = ((number * 2654435761) % 1000) / 1000 - 0.5
    loss = 2 + 9 * math.exp(-number / 100_000) + 0.3 * noise
    rate = 4e-4 * min(1.0, number / 10_000)
    return Step(_moment(number // 4), 0, number, loss, rate, 6400 + 200 * noise, NO_MORE)


@lru_cache(maxsize=1)  # four steps in a row have the same one
def _moment(seconds: int) -> datetime:
    return STARTED_AT + timedelta(seconds=seconds)


def run() -> Result:
    """Opens the page of a long run and watches it for some updates.

    Raises:
        BenchmarkFailed: If Chromium or Playwright is missing, or the page does not come up.
    """
    chromium = shutil.which("chromium")
    if chromium is None:
        raise BenchmarkFailed("Chromium is not installed: apt-get install chromium.")
    try:
        sync_api = importlib.import_module("playwright.sync_api")
    except ModuleNotFoundError:
        raise BenchmarkFailed("Playwright is not installed: it is in requirements/dev.in.") from None
    long_run = LongRun(NUM_STEPS)
    with tempfile.TemporaryDirectory() as folder, RunLibrary(folder=Path(folder)) as library:
        log = Path(folder) / "pod-0.log"
        log.write_text("".join(f"line {number} of the log\n" for number in range(NUM_LINES)), encoding="utf-8")
        library.adopt(RUN_ID, long_run, log_dir=Path(folder))
        with PageServer(library) as server, sync_api.sync_playwright() as playwright:
            _wait_for(server)
            flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its sandbox to root
            browser = playwright.chromium.launch(executable_path=chromium, args=flags)
            measured = _measured(browser.new_page(viewport={"width": 1320, "height": 900}), server, sync_api.Error)
            browser.close()
    updates = measured.pop("updates")
    seconds = {**measured, "update": round(median(updates), 4), "slowest_update": round(max(updates), 4)}
    return Result(
        benchmark="page",
        ratios={
            "first_paint_to_limit": round(seconds["first_paint"] / MAX_FIRST_PAINT_SECONDS, 3),
            "update_to_limit": round(seconds["update"] / MAX_UPDATE_SECONDS, 3),
        },
        seconds=seconds,
        machine=this_machine(),
        details={"steps": NUM_STEPS, "log_lines": NUM_LINES, "curves": 3, "updates": UPDATES},
    )


def _wait_for(server: PageServer) -> None:
    """A person opens a page that is served: what the server does before is the command's time (benchmarks/cli.py)."""
    with suppress(urllib.error.HTTPError):  # it answers that the token is missing
        urllib.request.urlopen(f"http://127.0.0.1:{server.port}/", timeout=PATIENCE_SECONDS)


def _measured(page: Any, server: PageServer, timeout: type[Exception]) -> dict[str, Any]:
    try:
        page.goto(server.url_of(f"/runs/{RUN_ID}"))
        page.locator("[data-metric=loss] canvas").wait_for(timeout=PATIENCE_SECONDS * 1000)
        first_curves = page.evaluate("performance.now()") / 1000
        paint = page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime") / 1000
        log = page.evaluate(FETCH_LOG, f"/runs/{RUN_ID}/logs/pod-0") / 1000
    except timeout as late:
        raise BenchmarkFailed(f"The page did not come up: {late}") from None
    updates: list[float] = []
    seen = page.locator("#plots").get_attribute("data-drawn")
    before, cpu_before = int(seen), time.process_time()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(updates) < UPDATES and time.monotonic() < deadline:
        drawn = page.locator("#plots").get_attribute("data-drawn")
        if drawn != seen:
            seen = drawn
            updates.append(float(page.locator("#plots").get_attribute("data-milliseconds")) / 1000)
        page.wait_for_timeout(50)
    if not updates:
        raise BenchmarkFailed("The page was not brought up to date.")
    cpu = (time.process_time() - cpu_before) / max(1, int(seen) - before)
    return {
        "first_paint": round(paint, 3),
        "first_curves": round(first_curves, 3),
        "log_of_10000_lines": round(log, 3),
        "update_cpu_of_the_server": round(cpu, 4),
        "updates": updates,
    }


FETCH_LOG = """async (address) => {
  const began = performance.now();
  await (await fetch(address)).json();
  return performance.now() - began;
}"""
