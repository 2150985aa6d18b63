"""The page of a gang that no screen holds: seventy pods of a twin, which run nothing, in a real Chromium."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from benchmarks.many_runs import limit_nodes
from local.place import TwinRuns
from local.twin import Twin
from tests.integration.browsing import WIDE, chromium, opened
from tests.integration.test_page import AXE, PHONE, faults_of_access
from trainflow.page.library import RunLibrary
from trainflow.page.server import PageServer
from trainflow.page.view import MAX_POD_ROWS
from trainflow.spec.run_spec import parse_run_spec

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow

NUM_NODES = 70
TYPE = "c7i.xlarge"
TRAINS_SECONDS = 12.0

SPEC = {
    "version": 1,
    "name": "gang",
    "workload": {"script": "tests/assets/programs/steps.py", "image": "trainer:test", "launcher": "mpi"},
    "compute": {"instance_type": TYPE, "num_nodes": NUM_NODES, "processes_per_node": 1, "check_nodes": False},
    "precompile": {"enabled": False},
}


@pytest.fixture
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


def test_a_gang_of_seventy_is_legible_and_used_with_the_keyboard(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with Twin(home=tmp_path / "home", log_dir=tmp_path / "logs", time_scale=30, no_op_seconds=TRAINS_SECONDS) as twin:
        limit_nodes(twin, TYPE, NUM_NODES)
        place = TwinRuns(twin)
        run_id = place.start(parse_run_spec(SPEC))
        with (
            RunLibrary(folder=tmp_path / "out", place=place) as library,
            PageServer(library) as server,
            opened(browser, bypass_csp=True) as page,
        ):
            page.goto(server.url_of(f"/runs/{run_id}"))
            expect(page.locator("#pods")).to_contain_text(f"training: {NUM_NODES} running")
            for rank in (0, NUM_NODES - 1):  # its pods print and end
                page.get_by_label("Log of rank").fill(str(rank))
                page.keyboard.press("Enter")
                expect(page.locator("#log-text")).to_contain_text(f"rank {rank}")
            expect(page.locator(".pill")).to_have_text(re.compile("^Succeeded"))

            rows = page.locator("#pods tbody tr")
            expect(rows).to_have_count(MAX_POD_ROWS)
            expect(rows.filter(has_text="training-1-0-")).to_have_count(1)
            expect(page.locator("#pods")).to_contain_text("pods are not listed; rank 0's and those that have failed")
            page.get_by_role("button", name="Close").click()
            assert tabs_to(page, "rank", after="all-steps") <= 4, "no table is in the way"
            for viewport in (WIDE, PHONE):
                page.set_viewport_size({"width": viewport["width"], "height": viewport["height"]})
                table = page.locator("#pods .scroll").bounding_box()
                assert table is not None
                assert table["height"] <= viewport["height"], "the table scrolls in itself"
                wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
                assert wider == 0
                assert not AXE.is_file() or faults_of_access(page) == []


def tabs_to(page: Any, wanted: str, *, after: str) -> int:
    """How often the Tab key is pressed from one element of the page to another."""
    page.locator(f"#{after}").focus()
    for count in range(1, 100):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == wanted:
            return count
    raise AssertionError(f"{wanted} is not reached")
