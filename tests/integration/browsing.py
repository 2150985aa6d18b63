"""Pages in a real Chromium, which Playwright (requirements/dev.in) drives. Debian's package brings it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import PATIENCE

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

CHROMIUM = shutil.which("chromium")

WIDE = {"width": 1320, "height": 900}


@contextmanager
def chromium() -> Iterator[Browser]:
    """The browser; skips the test where there is none."""
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed: `apt-get install chromium` (.ci/run does it)")
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (requirements/dev.in)")
    flags = ["--no-sandbox"] if os.geteuid() == 0 else []  # Chromium refuses its sandbox to root
    sync_api.expect.set_options(timeout=1000 * PATIENCE)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=flags)
        yield browser
        browser.close()


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[Page]:
    """A page in a browser of its own; whatever goes wrong in it fails the test."""
    context: BrowserContext = browser.new_context(**{"viewport": WIDE, **options})
    context.set_default_timeout(1000 * PATIENCE)
    page = context.new_page()
    faults: list[str] = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
    yield page
    context.close()
    assert faults == []
