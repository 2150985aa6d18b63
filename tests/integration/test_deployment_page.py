"""The page of a deployment in a real Chromium, with nothing but an account's endpoints and credentials.

The account is the twin's AWS. Its runs have ended, or end here: a failed one, a finished one, one that is stopped and
resumed.
"""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection

from local.aws.deployment import CLUSTER_NAME, NAMESPACE
from local.twin import Twin
from tests.integration.browsing import chromium, opened
from tests.integration.commands import Commands, until
from tests.integration.test_resume import SPEC, write_project
from tests.integration.test_runs import TIME_SCALE
from tests.waiting import PATIENCE
from trainflow.cli.operate.place import open_deployment_named
from trainflow.deployment.kubernetes_names import RUN_LABEL
from trainflow.page.library import RunLibrary
from trainflow.page.server import PageServer

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = [pytest.mark.lengthy, pytest.mark.slow]

RUNS_COMMENT = "As deployed before the runs."
NUM_STEPS = 40
LAST_STEP = 250
"""Beyond what a first run reaches before it is stopped, at five steps a second."""

FAILING = """
import json
for step in range(1, 4):
    print(json.dumps({"step": step, "loss": 9 - step}), flush=True)
raise SystemExit("the data are not here")
"""


@dataclass(frozen=True, kw_only=True)
class Account:
    """A deployment with two ended runs, and the address of its page."""

    twin: Twin
    command: Commands
    url: str
    finished: str
    failed: str


def started(at: Commands, name: str, *, num_nodes: int = 1, **workload: Any) -> str:
    """Start a run of the program that counts, or of another one; its id."""
    compute = SPEC["compute"] | {"num_nodes": num_nodes}
    spec = SPEC | {"name": name, "workload": SPEC["workload"] | workload, "compute": compute}
    (at.folder / f"{name}.yaml").write_text(yaml.safe_dump(spec))
    return at("run", f"{name}.yaml", "--place", "twin", "--detach").splitlines()[-1]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def account(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    del browser  # without one nothing is started
    folder = tmp_path_factory.mktemp("account")
    write_project(folder)
    (folder / "fail.py").write_text(FAILING)
    with Twin(home=folder / "home", log_dir=folder / "logs", time_scale=TIME_SCALE) as twin:
        command = Commands(folder, twin.aws.client_environment, alone=True)
        deploy_with_comment(twin, RUNS_COMMENT)
        arguments = {"max_steps": NUM_STEPS, "seconds_per_step": 0.05}
        finished = started(command, "finished", arguments=arguments)
        failed = started(command, "failed", command=["python", "fail.py"], arguments={})
        for run_id, status in ((finished, "SUCCEEDED"), (failed, "FAILED")):
            until(lambda run_id=run_id: described(command, run_id) != "RUNNING")
            assert described(command, run_id) == status
        deploy_with_comment(twin, "As deployed after the runs.")
        serving = command.begin("ui", "--place", "twin")
        assert serving.stdout is not None
        yield Account(
            twin=twin,
            command=command,
            url=serving.stdout.readline().removeprefix("page").strip(),
            finished=finished,
            failed=failed,
        )
        serving.send_signal(signal.SIGINT)
        _, said = serving.communicate(timeout=PATIENCE)
        assert (serving.returncode, said) == (0, "")


def deploy_with_comment(twin: Twin, comment: str) -> None:
    """Deploy a workflow that says something of its last state."""
    stepfunctions = twin.client("stepfunctions")
    assert twin.deployment is not None
    arn = twin.deployment.address.state_machine_arn
    definition = json.loads(stepfunctions.describe_state_machine(stateMachineArn=arn)["definition"])
    definition["States"]["RunSucceeded"]["Comment"] = comment
    stepfunctions.update_state_machine(stateMachineArn=arn, definition=json.dumps(definition))


def described(command: Commands, run_id: str) -> str:
    return next(run["status"] for run in command.json("list", "--place", "twin") if run["run_id"] == run_id)


def test_a_failed_run_of_a_deployment_shows_its_advice_and_its_last_lines(account: Account, browser: Browser) -> None:
    from playwright.sync_api import expect

    error = account.command.json("report", account.failed, "--place", "twin")["runs"][0]["error"]
    with opened(browser) as page:
        page.goto(account.url)
        page.get_by_role("link", name=account.failed).click()
        expect(page.locator("h1 .pill")).to_have_text(re.compile("^Failed: "))
        expect(page.locator(".error h2")).to_have_text(error["name"])
        expect(page.locator(".error")).to_contain_text(error["message"])
        expect(page.locator(".error")).to_contain_text(error["what_to_do"])
        expect(page.locator("#workflow .state-failed .state-name").first).to_have_text("WatchTraining")
        expect(page.locator("[data-metric=loss] output")).to_have_text("6 at step 3")
        row = page.locator("#pods").get_by_role("row", name="training-1-0")
        expect(row).to_contain_text(re.compile(r"Failed\s+Log\s+c7i-xlarge-\d\s+1\s+0\b"))
        row.get_by_role("button", name="Log of").click()
        expect(page.locator("#log-text")).to_contain_text("the data are not here")
        page.keyboard.type("DATA ARE")
        expect(page.locator("#log-note")).to_contain_text("1 line found.")
        expect(page.locator("#log-note")).to_contain_text(f"These are the last lines that {account.failed} has kept")
        expect(page.locator("#log-text mark")).to_have_text("data are")
        page.get_by_role("link", name="Open the report").click()
        expect(page.locator("body")).to_contain_text(error["what_to_do"])


def test_a_finished_run_of_a_deployment_has_its_curves_and_its_report(account: Account, browser: Browser) -> None:
    from playwright.sync_api import expect

    with opened(browser) as page:
        page.goto(account.url)
        page.get_by_role("link", name=account.finished).click()
        figures = page.locator("#figures")
        expect(page.locator("h1 .pill")).to_have_text(re.compile("^Succeeded"))
        expect(figures).to_contain_text(re.compile(rf"Step\s+{NUM_STEPS}\s+of {NUM_STEPS}, 100%"))
        expect(figures).to_contain_text(re.compile(r"Cost, estimated\s+(\$|< \$)"))
        page.get_by_text("Graph of the states").click()
        expect(page.locator(".state-done .state-name", has_text="PublishArtifacts")).to_be_visible()
        ended = page.locator("#workflow .state").filter(has_text="RunSucceeded")
        expect(ended.locator("title")).to_contain_text(RUNS_COMMENT)  # and not what was deployed since then
        expect(page.locator("#layout-note")).to_have_count(0)
        curve = page.locator("[data-metric=loss]")
        expect(curve.locator("canvas")).to_be_visible()
        expect(curve.locator("output")).to_contain_text(f"at step {NUM_STEPS}")
        expect(curve.get_by_role("img")).to_have_attribute("aria-label", re.compile(rf"the newest of {NUM_STEPS};"))
        expect(page.locator("#pods").get_by_role("row", name="training-1-0")).to_contain_text("Succeeded")
        expect(page.get_by_role("button", name=re.compile("^(Stop|Resume) …$"))).to_have_count(0)
        page.get_by_role("link", name="Report", exact=True).click()
        expect(page.locator("h1")).to_contain_text("Succeeded")
        expect(page.locator("body")).to_contain_text(account.finished)


def test_a_run_of_a_deployment_is_stopped_and_resumed_after_questions(account: Account, browser: Browser) -> None:
    from playwright.sync_api import expect

    run_id = started(account.command, "stopped", arguments={"max_steps": LAST_STEP, "seconds_per_step": 0.2})
    with opened(browser) as page:
        page.goto(account.url)
        page.get_by_role("link", name=run_id).click()
        expect(page.locator("[data-metric=loss] output")).to_contain_text("at step 1")
        expect(page.locator("#figures")).to_contain_text(re.compile(r"CPUs busy\s+\d+ %\s+of 1 node"))
        expect(page.locator("#pods").get_by_role("row", name="training-1-0")).to_contain_text(re.compile(r"\d+ %"))
        page.get_by_role("button", name="Stop …").click()
        dialog = page.get_by_role("dialog", name=f"Stop {run_id}?")
        dialog.get_by_role("button", name="Let it go on").click()
        expect(dialog).to_be_hidden()
        assert described(account.command, run_id) == "RUNNING"
        page.get_by_role("button", name="Stop …").click()
        dialog.get_by_role("button", name="Stop the run").click()
        expect(page.locator("h1 .pill")).to_have_text("Stopped")
        expect(page.locator(".error")).to_contain_text("The run was stopped from the page.")
        expect(dialog).to_be_hidden()
        assert described(account.command, run_id) == "ABORTED"

        page.get_by_role("button", name="Resume …").click()
        dialog = page.get_by_role("dialog", name=f"Resume {run_id}?")
        dialog.get_by_role("button", name="Leave it ended").click()
        expect(dialog).to_be_hidden()
        page.get_by_role("button", name="Resume …").click()
        dialog.get_by_role("button", name="Resume the run").click()
        page.wait_for_url(lambda url: "/runs/stopped-" in url and not url.endswith(run_id))
        second = page.url.rpartition("/")[2]
        expect(page.get_by_role("link", name=run_id)).to_be_visible()
        expect(page.locator("h1 .pill")).to_have_text(re.compile("^Succeeded"))
        expect(page.locator("[data-metric=loss] output")).to_contain_text(f"at step {LAST_STEP}")
    steps = account.command.json("metrics", second, "--place", "twin")
    assert min(step["step"] for step in steps) > 10, "it goes on from the checkpoint of the first"


def test_ended_runs_of_a_deployment_are_compared(account: Account, browser: Browser) -> None:
    from playwright.sync_api import expect

    with opened(browser) as page:
        page.goto(account.url)
        for run_id in (account.finished, account.failed):
            page.get_by_label(f"Compare {run_id}").check()
        page.get_by_role("button", name="Compare 2 runs").click()
        expect(page.locator("#plot canvas")).to_be_visible()
        expect(page.locator("#plot")).to_have_attribute("aria-label", re.compile(re.escape(account.finished)))
        expect(page.locator(".legend li")).to_have_text([account.failed, account.finished], use_inner_text=True)
        row = page.get_by_role("row", name="workload.command")
        expect(row).to_contain_text("count.py")
        expect(row).to_contain_text("fail.py")


def test_the_log_of_a_run_whose_pods_are_gone_is_read_from_cloudwatch_logs(account: Account, browser: Browser) -> None:
    from playwright.sync_api import expect

    record = account.command.json("report", account.finished, "--place", "twin")["runs"][0]
    delete_pods(account.twin, account.finished)
    send_to_cloudwatch(
        account.twin,
        pod=record["jobs"]["training"]["rank0"],
        begin=datetime.fromisoformat(record["started_at"]) + timedelta(seconds=1),
        lines=[f"line {number} of the whole log" for number in range(1, 1201)],
    )
    with opened(browser) as page:
        page.goto(account.url)
        page.get_by_role("link", name=account.finished).click()
        page.get_by_role("button", name="Log of training-1-0").click()
        text, note = page.locator("#log-text"), page.locator("#log-note")
        expect(text).to_contain_text("line 1 of the whole log\n")
        expect(text).to_contain_text("line 1200 of the whole log")
        page.get_by_label("Search").fill("LINE 7 of")
        expect(note).to_have_text("1 line found.")
        expect(text).to_contain_text(re.compile(r"^\s+7  line 7 of the whole log\s+$"))
        page.get_by_role("button", name="Close").click()

        page.get_by_label("Log of rank").fill("0")
        page.get_by_role("button", name="Open").click()
        expect(page.locator("#log-name")).to_have_text("rank 0")
        expect(text).to_contain_text("line 1200 of the whole log")


def test_the_logs_of_a_gang_are_opened_beyond_those_that_are_followed(
    account: Account, browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A gang of two is a large one here: of more than 16 pods the observer follows rank 0's alone."""
    from playwright.sync_api import expect

    monkeypatch.setattr("trainflow.client.observe.observer.MAX_FOLLOWED_GANG", 1)
    for name, value in account.twin.aws.client_environment.items():
        monkeypatch.setenv(name, value)
    run_id = started(account.command, "gang", num_nodes=2, arguments={"max_steps": 5000, "seconds_per_step": 0.2})
    try:
        library = RunLibrary(folder=tmp_path, place=open_deployment_named("twin"), name="twin")
        with library, PageServer(library) as server, opened(browser) as page:
            page.goto(server.url_of(f"/runs/{run_id}"))
            button = page.get_by_role("button", name="Log of training-1-1")
            expect(button).to_be_visible()
            assert not list(library.run(run_id).log_dir.glob("*training-1-1*.log"))
            button.click()
            text = page.locator("#log-text")
            expect(text).to_contain_text('"step": 2,')
            seen = len(text.inner_text().splitlines())
            expect(text).to_contain_text(f'"step": {seen + 5},')  # it is followed
            steps = [json.loads(line)["step"] for line in text.inner_text().splitlines()]
            assert steps == list(range(1, len(steps) + 1)), "no line is lost, and none comes twice"
            page.get_by_label("Log of rank").fill("1")
            page.get_by_role("button", name="Open").click()
            expect(text).to_contain_text('"step": 2,')
    finally:
        account.command("stop", run_id, "--place", "twin")


def delete_pods(twin: Twin, run_id: str) -> None:
    """Delete the pods of a run, as a cluster does when the time of their job is over."""
    api = ApiClient(load_connection(twin.kubeconfig))
    pods = f"/api/v1/namespaces/{NAMESPACE}/pods"
    selector = f"{RUN_LABEL}={run_id}"
    for pod in api.get(pods, labelSelector=selector)["items"]:
        api.delete(f"{pods}/{pod['metadata']['name']}")
    until(lambda: not api.get(pods, labelSelector=selector)["items"])


def send_to_cloudwatch(twin: Twin, *, pod: str, begin: datetime, lines: list[str]) -> None:
    """Send lines of a pod to CloudWatch Logs, as Fluent Bit does on the nodes of an account."""
    logs, group = twin.client("logs"), f"/aws/containerinsights/{CLUSTER_NAME}/application"
    logs.create_log_group(logGroupName=group)
    logs.create_log_stream(logGroupName=group, logStreamName=pod)
    events = [
        {
            "timestamp": round(begin.timestamp() * 1000) + number,
            "message": json.dumps({"log": line, "kubernetes": {"pod_name": pod}}),
        }
        for number, line in enumerate(lines)
    ]
    logs.put_log_events(logGroupName=group, logStreamName=pod, logEvents=events)
