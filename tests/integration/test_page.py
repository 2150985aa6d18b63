"""The page in a real Chromium: a run watched to its end, a failure, a stop, a comparison, a million steps.

The runs are replayed, so that a minute of a run passes in a second; page, server and browser are the real ones.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from recorded_runs import recorded

from benchmarks.page import LongRun
from tests.fakes.replayed_place import ReplayedDeployment, ReplayedPlace
from tests.integration.browsing import WIDE, chromium, opened
from trainflow.client.continuing import CannotContinue
from trainflow.client.files import write_record, write_steps
from trainflow.page.library import RunLibrary
from trainflow.page.server import PageServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.lengthy

REPOSITORY = Path(__file__).parents[2]
AXE = REPOSITORY / "node_modules" / "axe-core" / "axe.min.js"
PICTURE = REPOSITORY / "docs" / "images" / "page.png"
REDRAW_PICTURE = "TRAINFLOW_DRAW_PAGE"
"""Set to write the picture in docs/ anew."""

RUN, FAILED = recorded("succeeded"), recorded("worker_failed")
LONG = "long-0123456789ab"

PHONE = {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture
def served(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PageServer]:
    """Two runs of a place that go on, and one that has failed in a folder."""
    monkeypatch.setattr("trainflow.page.app.POLL_SECONDS", 0.1)
    monkeypatch.setattr("trainflow.page.library.SNAPSHOT_SECONDS", 0.1)
    folder = tmp_path / "out" / FAILED.run_id
    write_record(FAILED.record(), folder / "run.json")
    write_steps(FAILED.lines, folder / "steps.json")
    (folder / "logs").mkdir()
    for pod in FAILED.pods:
        (folder / "logs" / f"{pod.name}.log").write_text("".join(f"{line}\n" for line in FAILED.log))
    place = ReplayedPlace([RUN], polls=40, folder=tmp_path)
    runs = RunLibrary(folder=tmp_path / "out", place=place, resume=place.resume, name="replay")
    with runs as library, PageServer(library) as server:
        yield server


def test_a_run_is_watched_from_its_start_to_its_end(browser: Browser, served: PageServer) -> None:
    from playwright.sync_api import expect

    with opened(browser) as page:
        page.goto(served.url)
        assert "token" not in page.url
        page.get_by_role("link", name=RUN.run_id).click()
        page.get_by_text("Graph of the states").click()
        expect(page.locator(".pill")).to_have_text(re.compile("Starting|Waiting for nodes|Compiling|Training"))
        lit = page.locator(".state-current .state-name")
        expect(lit).to_have_text("WatchTraining")
        expect(page.locator("[data-metric=loss] output")).to_contain_text("at step")
        expect(page.locator("#figures")).to_contain_text("Training done in")
        expect(page.locator(".pill")).to_have_text(re.compile("^Succeeded"))

        expect(page.locator("#live")).to_have_text("The run has ended: Succeeded.")
        expect(page.locator(".state-done .state-name").last).to_be_visible()
        assert page.locator(".state-current").count() == 0
        expect(page.locator("#stop")).to_have_count(0)
        assert page.locator("[data-metric=loss] [role=img]").get_attribute("aria-label", timeout=5000) == (
            f"Loss: {RUN.lines[-1].loss:.4g} at step 200, the newest of 200; "
            f"lowest {min(line.loss or 0 for line in RUN.lines):.4g}, "
            f"highest {max(line.loss or 0 for line in RUN.lines):.4g}."
        )


def test_a_failure_shows_its_advice_and_the_log_with_search(browser: Browser, served: PageServer) -> None:
    from playwright.sync_api import expect

    record = FAILED.record()
    assert record.error is not None
    with opened(browser) as page:
        page.goto(served.url_of(f"/runs/{FAILED.run_id}"))
        expect(page.locator(".error")).to_contain_text(record.error.name)
        expect(page.locator(".error")).to_contain_text(record.error.what_to_do.split("`")[0][:40])
        page.get_by_text("Graph of the states").click()
        expect(page.locator(".state-failed .state-name").first).to_be_visible()
        page.get_by_role("button", name="Log of training-1-0").first.click()
        expect(page.locator("#log-search")).to_be_focused()
        expect(page.locator("#log-text")).to_contain_text("step_loss")
        page.keyboard.type("RANK 0")
        expect(page.locator("#log-note")).to_contain_text("found")
        expect(page.locator("#log-text mark").first).to_have_text("Rank 0")


def test_the_evidence_stands_under_the_error_and_leads_to_its_line_in_the_log(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    record = FAILED.record()
    pod = next(pod.name for pod in record.jobs["training"].pods if pod.phase == "Failed")
    assert record.error is not None
    line = "ValueError: label of -1"
    error = replace(record.error, line=line, pod=pod, excerpt=("Traceback", line), place="fit.py:16", rank=1)
    folder = tmp_path / FAILED.run_id
    write_record(record.model_copy(update={"error": error}), folder / "run.json")
    (folder / "logs").mkdir()
    lines = [*(f"step {n}" for n in range(500)), f"[rank1]: {line}", *(f"[rank0]: lost {n}" for n in range(500))]
    (folder / "logs" / f"{pod}.log").write_text("".join(f"{each}\n" for each in lines))
    with RunLibrary(folder=tmp_path) as library, PageServer(library) as server, opened(browser) as page:
        page.goto(server.url_of(f"/runs/{FAILED.run_id}"))
        expect(page.locator(".error .evidence")).to_contain_text(f"rank 1, pod {pod}, fit.py:16")
        expect(page.locator(".error .evidence pre")).to_have_text(f"Traceback\n{line}")
        expect(page.locator("#pods td.message").filter(has_text=line)).to_have_count(1)
        page.get_by_role("button", name="Show in the log").click()
        expect(page.locator("#log-text mark")).to_have_text(f"[rank1]: {line}")
        expect(page.locator("#log-text mark")).to_be_in_viewport()
        page.locator("#log-text").evaluate("text => { text.scrollTop = 0; }")
        page.get_by_role("button", name="First error").click()
        expect(page.locator("#log-text mark")).to_be_in_viewport()


def test_the_keys_of_the_curves_have_the_colours_of_their_marks_alone(browser: Browser, served: PageServer) -> None:
    """The report's style is the page's, too, and has keys that draw a mark of their own."""
    painted = """keys => keys.map(
        key => [getComputedStyle(key).backgroundColor, getComputedStyle(key, "::before").content]
    )"""
    with opened(browser) as page:
        page.goto(served.url_of(f"/runs/{RUN.run_id}"))
        keys = page.locator(".controls .lead span").evaluate_all(painted)
    assert [content for _, content in keys] == ["none"] * 3
    assert len({colour for colour, _ in keys}) == 3


def test_a_run_is_stopped_after_a_question(browser: Browser, served: PageServer) -> None:
    from playwright.sync_api import expect

    with opened(browser) as page:
        page.goto(served.url_of(f"/runs/{RUN.run_id}"))
        page.get_by_role("button", name="Stop …").click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text(f"Stop {RUN.run_id}?")
        expect(dialog.get_by_role("button", name="Let it go on")).to_be_focused()
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        expect(page.locator(".pill")).to_have_text(re.compile("Starting|Waiting for nodes|Compiling|Training"))

        page.get_by_role("button", name="Stop …").click()
        dialog.get_by_role("button", name="Stop the run").click()

        expect(page.locator(".pill")).to_have_text("Stopped")
        expect(page.locator(".error")).to_contain_text("The run was stopped from the page.")
        expect(dialog).to_be_hidden()


@contextmanager
def tabs(browser: Browser, folder: Path, number: int) -> Iterator[list[Page]]:
    """Tabs of one browser that all show the same run, which goes on."""
    place = ReplayedPlace([RUN], polls=100_000, folder=folder)
    with (
        RunLibrary(folder=folder / "out", place=place, name="replay") as library,
        PageServer(library) as server,
        opened(browser) as first,
    ):
        first.goto(server.url_of(f"/runs/{RUN.run_id}"))
        pages = [first, *(first.context.new_page() for _ in range(number - 1))]
        for page in pages[1:]:
            page.goto(first.url)
        yield pages


def test_nine_pages_of_one_run_all_load_and_work(browser: Browser, tmp_path: Path) -> None:
    """Chromium opens six connections to a host: no page may keep one for itself."""
    from playwright.sync_api import expect

    with tabs(browser, tmp_path, 9) as pages:
        for page in pages:
            expect(page.locator(".pill")).to_have_text(re.compile("Starting|Waiting for nodes|Compiling|Training"))
        assert pages[-1].evaluate("async () => (await fetch('/list')).status") == 200
        pages[-1].get_by_role("button", name="Stop …").click()
        pages[-1].get_by_role("dialog").get_by_role("button", name="Stop the run").click()
        for page in pages:
            expect(page.locator(".pill")).to_have_text("Stopped")


@pytest.mark.slow
def test_one_of_twelve_tabs_asks_and_another_one_does_when_it_is_closed(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    with tabs(browser, tmp_path, 12) as pages:
        asking = pages_that_ask(pages)
        assert len(asking) == 1
        asking[0].close()
        pages.remove(asking[0])
        assert len(pages_that_ask(pages)) == 1

        pages[0].get_by_role("button", name="Stop …").click()
        pages[0].get_by_role("dialog").get_by_role("button", name="Stop the run").click()
        for page in pages:
            expect(page.locator(".pill")).to_have_text("Stopped")


def pages_that_ask(pages: list[Page]) -> list[Page]:
    """The pages that request news within some seconds, after those that took turns while pages were opened."""
    asking: list[Page] = []
    for page in pages:
        page.wait_for_timeout(100)
        page.on("request", lambda request, page=page: asking.append(page) if "/news" in request.url else None)
    asking.clear()
    pages[-1].wait_for_timeout(3000)
    return list(dict.fromkeys(asking))


@pytest.mark.parametrize("path", ["/", f"/runs/{RUN.run_id}"])
def test_open_pages_reconnect_by_themselves_after_a_restart_on_the_same_port(
    browser: Browser, tmp_path: Path, path: str
) -> None:
    from playwright.sync_api import expect

    write_record(FAILED.record(), tmp_path / FAILED.run_id / "run.json")
    context = browser.new_context(viewport=WIDE)
    pages = [context.new_page(), context.new_page()]
    place = ReplayedPlace([RUN], polls=10_000, folder=tmp_path)
    with RunLibrary(folder=tmp_path, place=place) as library, PageServer(library, key="a" * 64) as first:
        pages[0].goto(first.url)
        for page in pages:
            page.goto(first.url.partition("/?")[0] + path)
    starts = [page.evaluate("document.body.dataset.start") for page in pages]
    place = ReplayedPlace([RUN], polls=10_000, folder=tmp_path)
    with (
        RunLibrary(folder=tmp_path, place=place) as library,
        PageServer(library, port=first.port, key="a" * 64) as second,
    ):
        for page, start in zip(pages, starts, strict=True):
            page.wait_for_function("start => document.body.dataset.start !== start", arg=start)
            expect(page.locator("#connection")).to_be_hidden()
            assert page.url == second.url.partition("/?")[0] + path
    context.close()


def test_a_failed_run_is_resumed_after_a_question(browser: Browser, served: PageServer) -> None:
    from playwright.sync_api import expect

    with opened(browser) as page:
        page.goto(served.url_of(f"/runs/{FAILED.run_id}"))
        page.get_by_role("button", name="Resume …").focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog", name=f"Resume {FAILED.run_id}?")
        expect(dialog.get_by_role("button", name="Leave it ended")).to_be_focused()
        page.keyboard.press("Enter")
        expect(dialog).to_be_hidden()
        expect(page.get_by_role("button", name="Resume …")).to_be_focused()
        assert page.url.endswith(FAILED.run_id)

        page.keyboard.press("Enter")
        dialog.get_by_role("button", name="Resume the run").click()

        page.wait_for_url(f"**/runs/{RUN.run_id}")
        expect(page.locator(".pill")).to_have_text(re.compile("Starting|Waiting for nodes|Compiling|Training"))


def test_a_run_that_cannot_be_resumed_says_why(
    browser: Browser, served: PageServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    from playwright.sync_api import expect

    def refuse(_library: RunLibrary, run_id: str) -> str:
        raise CannotContinue(f"The run {run_id} made no checkpoint.")

    monkeypatch.setattr(RunLibrary, "resume", refuse)
    context = browser.new_context(viewport=WIDE)  # the browser itself reports the refusal as an error
    page = context.new_page()
    page.goto(served.url_of(f"/runs/{FAILED.run_id}"))
    page.get_by_role("button", name="Resume …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("button", name="Resume the run").click()
    expect(dialog.get_by_role("status")).to_have_text(
        f"It was not resumed: The run {FAILED.run_id} made no checkpoint."
    )
    expect(dialog.get_by_role("button", name="Resume the run")).to_be_enabled()
    context.close()


def test_runs_are_filtered_chosen_and_compared(browser: Browser, served: PageServer) -> None:
    from playwright.sync_api import expect

    with opened(browser) as page:
        page.goto(served.url)
        expect(page.locator("tr[data-name]:visible")).to_have_count(2)
        page.get_by_label("Status").select_option("FAILED")
        expect(page.locator("tr[data-name]:visible")).to_have_count(1)
        page.get_by_label("Status").select_option("")
        page.get_by_label("Filter by name").fill("nothing like it")
        expect(page.get_by_text("No run matches the filter.")).to_be_visible()
        page.get_by_label("Filter by name").fill("")
        expect(page.get_by_role("button", name="Compare")).to_be_disabled()
        for run in (RUN, FAILED):
            page.get_by_label(f"Compare {run.run_id}").check()
        page.get_by_role("button", name="Compare 2 runs").click()

        expect(page.locator("h1")).to_have_text("Compare 2 runs")
        expect(page.locator("#plot canvas")).to_be_visible()
        expect(page.locator(".legend li")).to_have_count(2)


def test_the_server_ending_is_said_and_not_hidden(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect

    place = ReplayedPlace([RUN], polls=10_000, folder=tmp_path)
    context = browser.new_context(viewport=WIDE)
    page = context.new_page()
    with RunLibrary(folder=tmp_path, place=place) as library, PageServer(library) as server:
        page.goto(server.url_of(f"/runs/{RUN.run_id}"))
        page.get_by_text("Graph of the states").click()
        expect(page.locator(".state-current").first).to_be_visible()
    page.get_by_role("button", name="All steps").click()
    expect(page.locator("#connection")).to_contain_text("the command that showed this page has ended")
    expect(page.locator("#no-curves")).to_have_text("No step has been logged yet.")
    context.close()


@pytest.mark.parametrize("path", ["/", f"/runs/{RUN.run_id}", f"/compare?run={RUN.run_id}&run={FAILED.run_id}"])
def test_an_open_page_goes_on_after_a_restart_once_the_new_address_was_opened(
    browser: Browser, tmp_path: Path, path: str
) -> None:
    from playwright.sync_api import expect

    write_record(FAILED.record(), tmp_path / FAILED.run_id / "run.json")
    place = ReplayedPlace([RUN], polls=10_000, folder=tmp_path)
    context = browser.new_context(viewport=WIDE)
    page = context.new_page()
    with RunLibrary(folder=tmp_path, place=place) as library, PageServer(library) as first:
        page.goto(first.url)
        page.goto(first.url.partition("/?")[0] + path)
        expect(page.locator("h1").first).to_be_visible()
    place = ReplayedPlace([RUN], polls=10_000, folder=tmp_path)
    with RunLibrary(folder=tmp_path, place=place) as library, PageServer(library, port=first.port) as second:
        if path.startswith("/compare"):
            page.get_by_role("button", name="All steps").click()
        expect(page.locator("#connection")).to_contain_text("Trainflow was started again")
        assert not [cookie for cookie in context.cookies() if cookie.get("value") in second.url], "it is another token"
        other = context.new_page()
        other.goto(second.url)
        with page.expect_event("load"):
            pass
        expect(page.locator("#connection")).to_be_hidden()
        assert page.url.endswith(path)
    context.close()


@pytest.fixture(scope="module")
def long_run() -> LongRun:
    return LongRun(1_000_000)


@pytest.mark.slow
def test_a_million_steps_and_ten_thousand_lines_do_not_stutter(
    browser: Browser, long_run: LongRun, tmp_path: Path
) -> None:
    from playwright.sync_api import expect

    (tmp_path / "pod-0.log").write_text("".join(f"line {number} of the log\n" for number in range(10_000)))
    with RunLibrary(folder=tmp_path) as library:
        library.adopt(LONG, long_run, log_dir=tmp_path)
        library.run(LONG).curves()  # a million is read once, when the curves are first looked at
        with PageServer(library) as server, opened(browser) as page:
            page.goto(server.url_of(f"/runs/{LONG}"))
            plots = page.locator("#plots[data-drawn]")
            expect(plots).to_be_visible()
            page.evaluate(WATCH_LONG_TASKS)
            page.get_by_label("Logarithmic").check()
            page.locator("#from").fill("400000")
            page.locator("#to").fill("400100")
            page.locator("#to").press("Enter")
            expect(page.locator("[data-metric=loss] output")).to_contain_text("at step 400,100")
            expect(plots).to_have_attribute("data-drawn", re.compile(r"[6-9]|\d\d"))
            lines = page.evaluate(f"fetch('/runs/{LONG}/logs/pod-0').then((answer) => answer.json())")["lines"]

            assert lines[-1] == "line 9999 of the log"
            assert page.evaluate("window.longest") < 500  # ms; a browser calls 50 long, and this machine is shared


WATCH_LONG_TASKS = """() => {
  window.longest = 0;
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) window.longest = Math.max(window.longest, duration);
  }).observe({ entryTypes: ["longtask"] });
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_the_page_is_accessible(browser: Browser, served: PageServer, scheme: str, viewport: dict[str, int]) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: `npm ci` (make check does it)")
    pages = ["/", f"/runs/{RUN.run_id}", f"/runs/{FAILED.run_id}", f"/compare?run={RUN.run_id}&run={FAILED.run_id}"]
    found = {}
    # The page's own policy forbids scripts that are put into it; the checker's is one.
    with opened(browser, color_scheme=scheme, viewport=viewport, bypass_csp=True) as page:
        page.goto(served.url)
        for path in pages:
            page.goto(f"http://127.0.0.1:{served.port}{path}")
            page.wait_for_load_state("load")
            if path.startswith("/compare"):
                page.wait_for_selector("#plot[data-drawn]")
            for question in page.get_by_role("button", name=re.compile("^(Stop|Resume) …$")).all():
                question.click()
            found[path] = faults_of_access(page)
            wider = page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
            assert wider == 0, f"{path} is {wider} pixels wider than the screen"

    assert {path: faults for path, faults in found.items() if faults} == {}, json.dumps(found, indent=1)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, PHONE], ids=["wide", "phone"])
def test_what_a_deployment_adds_to_the_page_is_accessible(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scheme: str, viewport: dict[str, int]
) -> None:
    from playwright.sync_api import expect

    if not AXE.is_file():
        pytest.skip("axe-core is not installed: `npm ci` (make check does it)")
    monkeypatch.setattr("trainflow.page.library.SNAPSHOT_SECONDS", 0.1)
    place = ReplayedDeployment([RUN], polls=40, folder=tmp_path)
    options = {"color_scheme": scheme, "viewport": viewport, "bypass_csp": True}
    with (
        RunLibrary(folder=tmp_path / "out", place=place, name="mine") as library,
        PageServer(library) as server,
        opened(browser, **options) as page,
    ):
        page.goto(server.url_of(f"/runs/{RUN.run_id}"))
        expect(page.locator("#figures")).to_contain_text("NeuronCores busy")
        expect(page.locator("#layout-note")).to_contain_text("states:DescribeStateMachineForExecution")
        page.get_by_label("Log of rank").fill("40")
        page.keyboard.press("Enter")
        expect(page.locator("#log-note")).to_have_text("These are the last lines that it has kept.")
        expect(page.locator("#log-text")).to_have_text(f"40 of {RUN.run_id}\na line with a Word")
        assert faults_of_access(page) == []
        assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
        page.get_by_role("button", name="Close").click()
        expect(page.get_by_label("Log of rank")).to_be_focused()


def test_the_page_is_accessible_while_its_curves_are_fetched(browser: Browser, served: PageServer) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed: `npm ci` (make check does it)")
    found = {}
    with opened(browser, bypass_csp=True) as page:
        page.goto(served.url)
        page.route(re.compile("/curves"), lambda route: None)
        for path in (f"/runs/{RUN.run_id}", f"/compare?run={RUN.run_id}&run={FAILED.run_id}"):
            page.goto(f"http://127.0.0.1:{served.port}{path}", wait_until="domcontentloaded")
            found[path] = faults_of_access(page)

    assert {path: faults for path, faults in found.items() if faults} == {}, json.dumps(found, indent=1)


def faults_of_access(page: Page) -> list[tuple[str, list[str]]]:
    """What axe-core finds on a page against WCAG 2.2 AA: the name of each rule, and the elements that break it."""
    page.add_script_tag(path=str(AXE))
    rules = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
    result = page.evaluate("rules => axe.run(document, {runOnly: rules})", rules)
    return [(fault["id"], [node["html"][:120] for node in fault["nodes"]]) for fault in result["violations"]]


def test_the_page_is_used_with_the_keyboard_alone(browser: Browser, served: PageServer) -> None:
    from playwright.sync_api import expect

    with opened(browser) as page:
        page.goto(served.url_of(f"/runs/{FAILED.run_id}"))
        page.keyboard.press("Tab")
        expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
        reached = set()
        for _ in range(60):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))
        assert {"Trainflow", "log-scale", "smoothing", "from", "to", "all-steps", "Table of states", "Log"} <= {
            "Log" if name.startswith("log-") and name not in ("log-scale",) else name for name in reached
        }


@pytest.mark.slow
def test_the_picture_in_the_documentation_is_of_this_page(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from playwright.sync_api import expect

    monkeypatch.setattr("trainflow.page.library.SNAPSHOT_SECONDS", 3600.0)  # one moment of the run
    place = ReplayedPlace([RUN], polls=40, folder=tmp_path)
    picture = PICTURE if REDRAW_PICTURE in os.environ else tmp_path / "page.png"
    picture.parent.mkdir(parents=True, exist_ok=True)
    followed = place.follow(RUN.run_id, log_dir=tmp_path / "logs")
    with RunLibrary(folder=tmp_path, place=place) as library, followed:
        for _ in range(35):
            followed.snapshot()
        library.adopt(RUN.run_id, followed, log_dir=tmp_path / "logs")
        with PageServer(library) as server, opened(browser) as page:
            page.goto(server.url_of(f"/runs/{RUN.run_id}"))
            expect(page.locator("[data-metric=loss] canvas")).to_be_visible()
            page.screenshot(path=picture)

    assert picture.stat().st_size <= 150_000
    assert PICTURE.is_file(), f"draw it: {REDRAW_PICTURE}=1 pytest {Path(__file__).name}"
