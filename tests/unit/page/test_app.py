"""What the page answers, and to whom."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from recorded_runs import recorded
from starlette.testclient import TestClient

from benchmarks.page import LongRun
from tests.fakes.replayed_place import ReplayedPlace
from trainflow.client.continuing import CannotContinue
from trainflow.client.files import write_record, write_report, write_steps
from trainflow.page.app import OpenPages, PageApp, compared, parse_window
from trainflow.page.library import RunLibrary
from trainflow.page.server import PageServer
from trainflow.workflow.owner import Owner, OwnerKind
from trainflow.workflow.run_record import RunStatus

TOKEN, FORM_TOKEN, PORT = "right", "form", 8000
BASE = f"http://127.0.0.1:{PORT}"
RUN, FAILED = recorded("succeeded"), recorded("worker_failed")


@pytest.fixture
def place(tmp_path: Path) -> ReplayedPlace:
    return ReplayedPlace([RUN], polls=20, folder=tmp_path)


@pytest.fixture
def library(tmp_path: Path, place: ReplayedPlace) -> Iterator[RunLibrary]:
    """A place with a run that goes on, and a folder with one that has failed."""
    record = FAILED.record()
    folder = tmp_path / "out" / FAILED.run_id
    write_record(record, folder / "run.json")
    write_steps(FAILED.lines, folder / "steps.json")
    write_report(record, FAILED.lines, folder / "report.html")
    (folder / "logs").mkdir()
    (folder / "logs" / f"{FAILED.pods[-1].name}.log").write_text("\n".join(FAILED.log) + "\n")
    (tmp_path / "out" / "latest").symlink_to(folder.name)
    with RunLibrary(folder=tmp_path / "out", place=place, resume=place.resume) as library:
        yield library


@pytest.fixture
def page(library: RunLibrary) -> PageApp:
    return PageApp(library, form_token=FORM_TOKEN)


@pytest.fixture
def stranger(page: PageApp) -> TestClient:
    return TestClient(page.guarded(token=TOKEN, port=PORT), base_url=BASE, follow_redirects=False)


@pytest.fixture
def reader(stranger: TestClient) -> TestClient:
    assert stranger.get("/", params={"token": TOKEN}).status_code == 303
    return stranger


@pytest.mark.parametrize("path", ["/", "/?token=wrong", f"/runs/{RUN.run_id}", "/assets/run.js", "/list"])
def test_nothing_is_shown_without_the_token(stranger: TestClient, path: str) -> None:
    answer = stranger.get(path)

    assert (answer.status_code, "its token is missing or wrong" in answer.text) == (403, True)


def test_the_token_leaves_the_address_and_stays_as_a_cookie(stranger: TestClient) -> None:
    answer = stranger.get(f"/runs/{RUN.run_id}", params={"token": TOKEN, "x": "1"})

    assert (answer.status_code, answer.headers["location"]) == (303, f"/runs/{RUN.run_id}?x=1")
    assert "HttpOnly" in answer.headers["set-cookie"]
    assert "samesite=lax" in answer.headers["set-cookie"].lower()
    assert stranger.get("/").status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8000", "169.254.169.254", "", "[::1"])
def test_a_name_that_was_rebound_to_this_machine_is_refused(reader: TestClient, host: str) -> None:
    assert reader.get("/", headers={"host": host}).status_code == 403


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1:9999", "[::1]:8000"])
def test_the_machines_own_names_are_served_on_any_port_of_a_tunnel(reader: TestClient, host: str) -> None:
    cookie = f"trainflow-page-{PORT}={TOKEN}"

    assert reader.get("/", headers={"host": host, "cookie": cookie}).status_code == 200


def test_every_answer_forbids_what_is_not_the_pages_own(reader: TestClient, stranger: TestClient) -> None:
    for path in ("/", "/assets/page.css", f"/runs/{RUN.run_id}/curves", "/nothing"):
        headers = reader.get(path).headers
        assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'; style-src 'self'")
        assert "access-control-allow-origin" not in headers
        assert headers["x-content-type-options"] == "nosniff"


def test_the_page_has_no_script_or_style_of_its_own_in_the_markup(reader: TestClient) -> None:
    for path in ("/", f"/runs/{RUN.run_id}", f"/compare?run={RUN.run_id}&run={FAILED.run_id}"):
        text = reader.get(path).text
        assert "<style" not in text
        assert " style=" not in text
        assert " onclick" not in text
        assert text.count("<script") == text.count('src="/assets/') == text.count("</script>")


def test_a_stop_needs_the_pages_own_token_and_no_other_sites_form(reader: TestClient, library: RunLibrary) -> None:
    address = f"/runs/{RUN.run_id}/stop"

    assert reader.post(address).status_code == 403
    assert reader.post(address, headers={"x-trainflow-token": "wrong"}).status_code == 403
    foreign = {"x-trainflow-token": FORM_TOKEN, "origin": "http://evil.example"}
    assert reader.post(address, headers=foreign).status_code == 403
    assert reader.get(address).status_code == 405
    assert library.run(RUN.run_id).snapshot.status is RunStatus.RUNNING

    assert reader.post(address, headers={"x-trainflow-token": FORM_TOKEN, "origin": BASE}).text == "Stopped.\n"

    stopped = library.run(RUN.run_id).snapshot
    assert stopped.error is not None
    assert (stopped.status, stopped.error.message) == (RunStatus.ABORTED, "The run was stopped from the page.")


def test_a_run_is_resumed_with_the_pages_own_token_and_once(
    reader: TestClient, library: RunLibrary, place: ReplayedPlace
) -> None:
    address, own = f"/runs/{FAILED.run_id}/resume", {"x-trainflow-token": FORM_TOKEN, "origin": BASE}

    assert reader.post(address).status_code == 403
    assert reader.post(address, headers={**own, "origin": "http://evil.example"}).status_code == 403
    assert reader.get(address).status_code == 405
    assert reader.post("/runs/absent-0123456789ab/resume", headers=own).status_code == 404
    assert place.resumed == []

    assert reader.post(address, headers=own).json() == {"run_id": RUN.run_id}
    assert reader.post(address, headers=own).json() == {"run_id": RUN.run_id}, "the answer was lost on its way"
    assert place.resumed == [FAILED.run_id]

    library.stop(RUN.run_id)
    reader.post(address, headers=own)
    assert place.resumed == [FAILED.run_id, FAILED.run_id], "the run that it had started has ended"


def test_a_run_that_cannot_be_resumed_is_one_sentence(tmp_path: Path, library: RunLibrary) -> None:
    def refuse(run_id: str) -> str:
        raise CannotContinue(f"The run {run_id} made no checkpoint.")

    own = {"x-trainflow-token": FORM_TOKEN}
    refusals = {refuse: f"The run {FAILED.run_id} made no checkpoint.\n", None: "cannot be resumed from this page"}
    for resume, sentence in refusals.items():
        with RunLibrary(folder=tmp_path / "out", resume=resume) as ended:
            client = TestClient(PageApp(ended, form_token=FORM_TOKEN).asgi, base_url=BASE)
            assert sentence in client.post(f"/runs/{FAILED.run_id}/resume", headers=own).text


def test_resuming_is_offered_for_what_has_ended_badly_alone(reader: TestClient, tmp_path: Path) -> None:
    assert 'id="resume"' in reader.get(f"/runs/{FAILED.run_id}").text
    assert 'id="resume"' not in reader.get(f"/runs/{RUN.run_id}").text, "it goes on"
    write_record(RUN.record(), tmp_path / "out" / RUN.run_id / "run.json")
    with RunLibrary(folder=tmp_path / "out", resume=lambda run_id: run_id) as ended:
        client = TestClient(PageApp(ended, form_token=FORM_TOKEN).asgi, base_url=BASE)
        assert 'id="resume"' not in client.get(f"/runs/{RUN.run_id}").text, "it has succeeded"
    with RunLibrary(folder=tmp_path / "out") as ended:
        client = TestClient(PageApp(ended, form_token=FORM_TOKEN).asgi, base_url=BASE)
        assert 'id="resume"' not in client.get(f"/runs/{FAILED.run_id}").text, "there is no place to start it"


def test_a_run_names_the_one_that_it_continues(tmp_path: Path) -> None:
    record = FAILED.record()
    continuing = record.model_copy(update={"spec": {**record.spec, "resume_from": ["first-0123456789ab"]}})
    write_record(continuing, tmp_path / FAILED.run_id / "run.json")
    with RunLibrary(folder=tmp_path) as ended:
        client = TestClient(PageApp(ended, form_token=FORM_TOKEN).asgi, base_url=BASE)
        assert 'href="/runs/first-0123456789ab"' in client.get(f"/runs/{FAILED.run_id}").text


def test_the_list_has_the_runs_of_the_place_and_those_that_left_a_folder(reader: TestClient) -> None:
    text = reader.get("/list").text

    assert text.count("<tr data-name") == 2
    assert f'data-name="{RUN.run_id}" data-status="RUNNING"' in text
    assert f'data-name="{FAILED.run_id}" data-status="FAILED"' in text


def test_owners_and_teams_are_columns_of_the_list_where_they_tell_runs_apart(
    reader: TestClient, tmp_path: Path
) -> None:
    assert "Owner" not in reader.get("/").text
    owner = Owner(kind=OwnerKind.SCHEDULE, name="nightly")
    record = FAILED.record().model_copy(update={"run_id": "other", "owner": owner, "team": "research"})
    write_record(record, tmp_path / "out" / "other" / "run.json")
    page = reader.get("/").text
    assert '<th scope="col" class="wide">Owner</th><th scope="col" class="wide">Team</th>' in page
    assert '<td class="message wide">schedule nightly</td>' in page
    assert '<td class="nowrap wide">research</td>' in page
    head = reader.get("/runs/other").text
    assert "<span>owner schedule nightly</span><span>team research</span>" in head


def test_a_failed_run_shows_its_error_and_what_to_do(reader: TestClient) -> None:
    error = FAILED.record().error
    assert error is not None

    text = reader.get(f"/runs/{FAILED.run_id}").text

    assert error.name in text
    assert "What to do next" in text
    assert 'id="stop"' not in text
    advice = text[text.index("What to do next") : text.index("</dl>", text.index("What to do next"))]
    assert f'<a href="/runs/{FAILED.run_id}/report">Open the report</a>' in advice, "advice may send the reader there"


@pytest.mark.parametrize("run_id", ["absent-0123456789ab", "%2e%2e", "%2e%2e%2fetc", "a%2fb"])
def test_a_run_that_is_not_there_is_one_sentence(reader: TestClient, run_id: str) -> None:
    answer = reader.get(f"/runs/{run_id}")

    assert answer.status_code == 404


def test_a_log_is_read_by_the_name_of_its_pod_alone(reader: TestClient) -> None:
    pod = FAILED.pods[-1].name
    address = f"/runs/{FAILED.run_id}/logs"

    assert reader.get(f"{address}/{pod}").json()["lines"] == list(FAILED.log)
    assert reader.get(f"{address}/{pod}", params={"search": "step_loss"}).json()["total"] == len(FAILED.lines)
    assert reader.get(f"{address}/..%2f..%2frun.json").status_code == 404
    assert reader.get(f"{address}/absent").status_code == 404


def test_the_curves_of_an_ended_run_have_every_step(reader: TestClient) -> None:
    answer = reader.get(f"/runs/{FAILED.run_id}/curves", params={"points": "1000", "smoothing": "nan"}).json()

    loss = next(metric for metric in answer["metrics"] if metric["key"] == "loss")
    assert loss["x"] == [line.step for line in FAILED.lines]


def test_two_runs_are_compared_by_metric_and_by_spec(reader: TestClient) -> None:
    runs = {"run": [RUN.run_id, FAILED.run_id]}

    curves = reader.get("/compare/curves", params={**runs, "metric": "loss"}).json()["curves"]

    assert [curve["run"] for curve in curves] == runs["run"]
    assert "Differing fields of the specs" in reader.get("/compare", params=runs).text


def test_the_report_may_not_read_the_page(reader: TestClient) -> None:
    answer = reader.get(f"/runs/{FAILED.run_id}/report")

    assert answer.headers["content-security-policy"].startswith("sandbox allow-scripts; default-src 'none'")
    assert reader.get(f"/runs/{RUN.run_id}/report").status_code == 404


def test_a_page_that_polls_hears_each_change_once_and_then_the_end(
    reader: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainflow.page.library.SNAPSHOT_SECONDS", 0.0)

    answers, seen = [], []
    while not answers or not answers[-1]["is_over"]:
        answers.append(reader.get(f"/runs/{RUN.run_id}/news", params={"page": "p", "seen": seen}).json())
        seen = answers[-1]["seen"]

    told = [each["announcement"] for each in answers if each["announcement"]]
    assert told[-1] == "The run has ended: Succeeded."
    assert "The run is in the state WatchTraining." in told
    assert len(told) == len(set(told))
    versions = [int(each["curves"]) for each in answers if each["curves"]]
    assert versions == sorted(set(versions))
    again = reader.get(f"/runs/{RUN.run_id}/news", params={"page": "p", "seen": seen}).json()
    assert (again["parts"], again["announcement"], again["curves"]) == ({}, None, None)


def test_an_open_page_is_waited_for_until_it_has_heard_of_the_end() -> None:
    pages = OpenPages()
    assert pages.has_told_all()
    pages.note("a", has_all=False)
    pages.note("b", has_all=False)
    pages.note("a", has_all=True)
    assert not pages.has_told_all()
    pages.note("b", has_all=True)
    assert pages.has_told_all()


def test_a_page_that_was_closed_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainflow.page.app.WATCHED_SECONDS", 0.0)
    pages = OpenPages()
    pages.note("a", has_all=False)
    assert pages.has_told_all()


def test_what_an_address_asks_for_is_bounded() -> None:
    window = parse_window({"from": "5", "to": "inf", "points": "zero", "smoothing": "7"})

    assert (window.first, window.last, window.points, window.smoothing) == (5, float("inf"), 600, 7)
    assert compared(["a", "a", *"bcdefghij"]) == list("abcdefgh")


def test_a_run_that_the_command_follows_is_observed_once(tmp_path: Path) -> None:
    run = LongRun(50)
    with RunLibrary(folder=tmp_path) as library:
        library.adopt("long-0123456789ab", run, log_dir=tmp_path / "logs")

        [summary] = library.summaries()

        assert (summary.run_id, library.run("long-0123456789ab").snapshot.steps[-1].step) == ("long-0123456789ab", 50)
        assert not library.run("long-0123456789ab").can_stop


def test_the_server_prints_its_address_before_it_serves_and_ends_with_its_context(tmp_path: Path) -> None:
    import urllib.error
    import urllib.request

    with RunLibrary(folder=tmp_path) as library, PageServer(library) as server:
        assert server.url.startswith("http://127.0.0.1:")
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert "There are no runs yet" in opener.open(server.url, timeout=20).read().decode()

    assert "page" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(urllib.error.URLError):
        opener.open(server.url, timeout=2)


def test_a_server_that_is_slow_to_end_keeps_its_port_until_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainflow.page.server.GOODBYE_SECONDS", 0.0)
    faults: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    with RunLibrary(folder=tmp_path) as library, PageServer(library) as server:
        while server._server is None or not server._server.started:
            time.sleep(0.01)
    server._thread.join(20)

    assert (server._thread.is_alive(), faults) == (False, [])


def test_ctrl_c_lets_the_server_end_before_its_port_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults: list[threading.ExceptHookArgs] = []
    monkeypatch.setattr(threading, "excepthook", faults.append)
    with RunLibrary(folder=tmp_path) as library, PageServer(library) as server:
        while server._server is None or not server._server.started:
            time.sleep(0.01)
        threading.Timer(0.1, signal.raise_signal, [signal.SIGINT]).start()
        with pytest.raises(KeyboardInterrupt):
            server.wait()
    while server._thread.ident in sys._current_frames():  # what the thread itself says may be wrong
        time.sleep(0.01)

    assert (server._socket.fileno(), faults) == (-1, [])
