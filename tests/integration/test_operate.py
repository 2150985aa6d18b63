"""The commands for runs, as a person types them: of a run in the twin, and of the same run as one of an account."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import psutil
import pytest
import yaml
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from local.aws.deployment import ARTIFACT_BUCKET, CACHE_TABLE, NAMESPACE, RUN_TABLE
from tests.documents import blocks
from tests.integration.browsing import chromium, opened
from tests.integration.commands import Commands, account_of, client_of, until
from tests.integration.terminal import Terminal
from tests.integration.test_runs import processes_of, steps_spec
from tests.unit.client.test_local_runs import leave_run
from tests.waiting import PATIENCE
from trainflow.client.grid import GRID_ID
from trainflow.client.twin_address import read_address
from trainflow.deployment.kubernetes_names import CLAIM_LABEL, MANAGED_BY, RUN_LABEL
from trainflow.record.wording import duration


def write_spec(folder: Path, **arguments: Any) -> None:
    (folder / "spec.yaml").write_text(yaml.safe_dump(steps_spec(**arguments)))


@dataclass(frozen=True, kw_only=True)
class Detached:
    """A run that goes on by itself, and how its terminal was left."""

    folder: Path
    run_id: str
    shown: str
    status: int


@pytest.fixture(scope="module")
def detached(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Detached]:
    """A run that was detached from its terminal with Ctrl-C, and goes on until a test stops it."""
    folder = tmp_path_factory.mktemp("detached")
    write_spec(folder, max_steps=100_000, seconds_per_step=0.1)
    here = Commands(folder)
    with Terminal(here.words("run", "spec.yaml", "--local"), folder, here.environment) as terminal:
        terminal.wait_for("loss", seconds=PATIENCE)
        terminal.type("\x03")
        terminal.wait_for("Stop the run, detach from it, or go on watching?")
        terminal.type("d\n")
        status = terminal.wait()
    (run,) = here.json("list", "--local")
    assert here.json("status", run["run_id"], "--local")["step"] >= 1, "status shows what the terminal has shown"
    until(lambda: here.json("metrics", run["run_id"], "--local"))  # those are stored by the workflow's polls
    found = Detached(folder=folder, run_id=run["run_id"], shown=terminal.shown, status=status)
    pause_survey(found)  # long before a test depends on it: one that is under way goes on to its end
    yield found
    here("stop", run["run_id"], "--local")


@pytest.fixture(params=["local", "account"])
def place(request: pytest.FixtureRequest, detached: Detached) -> tuple[Commands, tuple[str, ...], str]:
    """The commands, the option that names the place, and the run."""
    folder, run_id = detached.folder, detached.run_id
    if request.param == "local":
        return Commands(folder), ("--local",), run_id
    return Commands(folder, account_of(folder, run_id)), (), run_id


Place = tuple[Commands, tuple[str, ...], str]


def test_a_run_that_goes_on_is_listed_and_described(place: Place) -> None:
    command, at, run_id = place
    (listed,) = command.json("list", *at)
    assert (listed["run_id"], listed["status"], listed["ended_at"]) == (run_id, "RUNNING", None)
    found = command.json("status", run_id, *at)
    assert (found["run_id"], found["status"], found["total_steps"]) == (run_id, "RUNNING", 100_000)
    assert found["state"] == "WatchTraining"
    assert found["loss"] == pytest.approx(9 - found["step"] / 100)
    training = [pod for pod in found["pods"] if pod["stage"] == "training"]
    assert [(pod["phase"], pod["node"]) for pod in training] == [
        ("Running", "trn1-32xlarge-0"),
        ("Running", "trn1-32xlarge-1"),
    ]
    assert (found["error"], found["trouble"]) == (None, None)
    assert command("status", run_id, *at).startswith(
        f"run       {run_id}\nstatus    Training\nstate     WatchTraining\n"
    )


def test_all_that_goes_on_is_on_one_screen(place: Place) -> None:
    command, at, run_id = place
    found = command.json("top", *at)
    (run,) = found["runs"]
    assert (found["version"], run["run_id"], run["state"], run["total_steps"]) == (1, run_id, "WatchTraining", 100_000)
    assert (run["step"] > 2, run["cost_usd"] > 0, run["trouble"]) == (True, True, None)
    header, row = command("top", *at).splitlines()
    assert header.split() == ["RUN", "STATE", "STEP", "LOSS", "SPEED", "LEFT", "COST", "RUNNING", "FOR"]
    assert row.startswith(f"{run_id}  Training  ")


def test_its_log_is_followed_and_it_is_watched(place: Place) -> None:
    command, at, run_id = place
    following = command.begin("logs", run_id, *at, "--follow", "--since", "1s")
    watching = command.begin("watch", run_id, *at)
    assert "step_loss" in command("logs", run_id, *at)
    sentence = f"trainflow: The run {run_id} has no node of rank 9; it has ranks 0 to 1."
    assert command.refused("logs", run_id, *at, "--rank", "9") == sentence

    assert following.stdout is not None
    steps = [line for line, _ in zip(following.stdout, range(12), strict=False) if "step_loss" in line]
    following.send_signal(signal.SIGINT)
    following.communicate(timeout=PATIENCE)
    assert following.returncode == 130
    assert len(steps) == len(set(steps)) > 8
    assert watching.stdout is not None
    assert watching.stdout.readline().startswith("page  http://127.0.0.1:")
    assert any("step " in line for line, _ in zip(watching.stdout, range(200), strict=False))
    watching.send_signal(signal.SIGINT)
    rest, _ = watching.communicate(timeout=PATIENCE)
    assert f"The run goes on: trainflow status {run_id}" in rest
    assert command.json("status", run_id, *at)["status"] == "RUNNING"


def test_a_command_runs_in_its_pod(place: Place) -> None:
    command, at, run_id = place
    assert command("exec", run_id, *at, "--", "df", "-h").startswith("Filesystem")


def test_it_is_examined(place: Place) -> None:
    command, at, run_id = place
    answer = command.answer("doctor", "--run", run_id, *at, "--json")
    found = {finding["check"]: finding["outcome"] for finding in json.loads(answer.stdout)["findings"]}
    assert (found["pods"], found["nodes"], found["images"]) == ("ok", "ok", "ok"), answer
    devices = {check for check, outcome in found.items() if outcome == "failed"}
    # An account's nodes have the devices that they offer, and this one is a twin.
    assert devices == (set() if at else {"aws.amazon.com/neuron", "vpc.amazonaws.com/efa"})
    assert answer.status == (0 if at else 1)


DOCUMENTED_OF_LAPTOPS = {
    " ".join(words[1:]).removesuffix(" --open")  # there is no browser
    for block in blocks()
    if block.need is None and not block.inline
    for words in block.commands()
    if words[0] == "trainflow"
}
"""The commands that the documents give, and that need no account."""

READS = {
    "artifacts",
    "compare",
    "costs",
    "exec",
    "list",
    "messages",
    "metrics",
    "plan",
    "report",
    "schema",
    "status",
    "sweep",
    "top",
}
"""Commands that end by themselves, leave a run as it is, and judge nothing; so do dry runs."""

READ = {
    line
    for line in DOCUMENTED_OF_LAPTOPS
    if line.split()[0] in READS or line.endswith("--dry-run")
    if not any(GRID_ID.fullmatch(word) for word in line.split())
}
"""Those of them that read a run; test_documented_runs.py types the others."""


@pytest.mark.parametrize("line", sorted(READ))
def test_what_the_documents_ask_of_a_run_is_answered(detached: Detached, line: str) -> None:
    Commands(detached.folder)(*line.replace("RUN", detached.run_id).split())


def test_its_figures_are_exported(place: Place) -> None:
    command, at, run_id = place
    rows = list(csv.DictReader(io.StringIO(command("metrics", run_id, *at))))
    assert (rows[0]["step"], float(rows[0]["loss"])) == ("1", 8.99)
    documents = json.loads(command("metrics", run_id, *at, "--export", "json"))
    assert documents[0]["loss"] == 8.99
    later = {step["step"]: step for step in command.json("metrics", run_id, *at)}  # the run goes on
    common = [step for step in documents if step["step"] in later]  # of more than a thousand, every other one is kept
    assert len(common) > len(documents) / 3
    assert [later[step["step"]] for step in common] == common


def test_its_report_shows_what_is_known_now(place: Place, tmp_path: Path) -> None:
    command, at, run_id = place
    path = command("report", run_id, *at, "--out", str(tmp_path) if not at else "out").strip()
    assert path.endswith(f"{run_id}/report-now.html")
    assert run_id in (command.folder / path).read_text()
    document = command.json("report", run_id, *at)
    assert [(run["run_id"], run["status"]) for run in document["runs"]] == [(run_id, "RUNNING")]


def test_it_is_compared(place: Place) -> None:
    command, at, run_id = place
    found = command.json("compare", run_id, run_id, *at)
    assert [run["run_id"] for run in found["runs"]] == [run_id, run_id]
    assert found["differing_fields"] == {}


def write_events(folder: Path) -> None:
    """TensorBoard events with one scalar, without PyTorch, which would be loaded in every process of the tests."""
    events = EventFileWriter(str(folder))
    loss = Summary(value=[Summary.Value(tag="loss", simple_value=2.5)])
    events.add_event(Event(step=1, summary=loss))
    events.close()


@pytest.fixture
def events(detached: Detached, tmp_path: Path) -> str:
    """TensorBoard events that the run's program has published so far; their name."""
    write_events(tmp_path)
    (file,) = tmp_path.iterdir()
    key = f"runs/{detached.run_id}/events/events.out.tfevents.1.a"
    s3 = client_of(account_of(detached.folder, detached.run_id), "s3")
    s3.put_object(Bucket=ARTIFACT_BUCKET, Key=key, Body=file.read_bytes())
    return "events/events.out.tfevents.1.a"


def test_what_it_has_published_is_listed_and_copied(place: Place, events: str, tmp_path: Path) -> None:
    command, at, run_id = place
    assert events in {each["name"] for each in command.json("artifacts", run_id, *at)}
    command("artifacts", run_id, *at, "--pull", str(tmp_path / "copies"))
    assert (tmp_path / "copies" / events).is_file()


def test_tensorboard_shows_it_while_it_goes_on(place: Place, events: str) -> None:
    command, at, run_id = place
    with Terminal(command.words("tensorboard", run_id, *at), command.folder, command.environment) as terminal:
        terminal.wait_for("(Press CTRL+C to quit)")
        address = re.search(r"http://127\.0\.0\.1:\d+/", terminal.shown)
        assert address is not None, terminal.shown
        assert until(lambda: json.loads(urlopen(f"{address[0]}data/runs").read())) == [f"{run_id}/events"]
        terminal.type("\x03")
        assert terminal.wait() == 130


def pause_survey(detached: Detached) -> None:
    """Disable the schedule that sweeps what ended runs have left, which would be quicker than a person now and then."""
    scheduler = client_of(account_of(detached.folder, detached.run_id), "scheduler")
    found = scheduler.get_schedule(GroupName="trainflow", Name="survey-fleet")
    kept = {name: found[name] for name in ("GroupName", "Name", "ScheduleExpression", "FlexibleTimeWindow", "Target")}
    scheduler.update_schedule(**kept, State="DISABLED")


def leave_a_claim(detached: Detached, run_id: str) -> tuple[ApiClient, str]:
    """Leave the claim of a run that began yesterday and that Step Functions has forgotten; its API and its path."""
    address = read_address(detached.folder / "out" / detached.run_id)
    assert address is not None
    now = datetime.now(UTC)
    row = {
        "run_id": {"S": run_id},
        "execution_arn": {"S": f"arn:aws:states:us-west-2:123456789012:execution:trainflow-training:{run_id}"},
        "spec_name": {"S": "steps"},
        "instance_type": {"S": "trn1.32xlarge"},
        "num_nodes": {"N": "2"},
        "status": {"S": "RUNNING"},
        "started_at": {"S": (now - timedelta(days=1)).isoformat()},
        "keep_nodes": {"BOOL": False},
        "keep_nodes_after_success": {"BOOL": False},
        "expires_at": {"N": str(int((now + timedelta(days=1)).timestamp()))},
    }
    client_of(account_of(detached.folder, detached.run_id), "dynamodb").put_item(TableName=RUN_TABLE, Item=row)
    api = ApiClient(load_connection(Path(address.kubeconfig)))
    claims = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    labels = {**MANAGED_BY, RUN_LABEL: run_id, CLAIM_LABEL: "trn1.32xlarge"}
    metadata = {"name": f"{run_id}-nodes", "labels": labels}
    api.create(claims, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"num_nodes": "2"}})
    return api, claims


def test_what_an_ended_run_has_left_is_listed_and_then_swept_and_a_run_that_goes_on_keeps_its_own(
    detached: Detached, place: Place
) -> None:
    command, at, _ = place
    run_id = "steps-0123456789ab" if at else "steps-ba9876543210"
    api, claims = leave_a_claim(detached, run_id)

    def claimed() -> set[str]:
        return {found["metadata"]["name"] for found in api.get(claims)["items"]} & {
            f"{run_id}-nodes",
            f"{detached.run_id}-nodes",
        }

    listed = command("sweep", *at, "--dry-run")
    assert f"{run_id}-nodes" in listed
    assert "would be deleted" in listed and "nodes stay at 43.00 USD an hour" in listed
    assert detached.run_id not in listed
    assert claimed() == {f"{run_id}-nodes", f"{detached.run_id}-nodes"}

    swept = command("sweep", *at)
    assert "Deleted what 1 run had left" in swept
    assert claimed() == {f"{detached.run_id}-nodes"}
    assert command("sweep", *at) == "Ended runs have left nothing.\n"


def test_what_is_not_there_is_one_sentence(place: Place) -> None:
    command, at, _ = place
    for words in (("status", "nothing-1"), ("logs", "nothing-1"), ("stop", "nothing-1"), ("report", "nothing-1")):
        assert command.refused(*words, *at).startswith("trainflow: There is no run 'nothing-1'")


def test_an_account_lists_its_deployments(detached: Detached) -> None:
    command = Commands(detached.folder, account_of(detached.folder, detached.run_id))
    assert command.json("places") == [
        {"name": "local", "what": "the twin, on this machine: --local"},
        {"name": "twin", "what": "deployment in us-west-2"},
    ]


def test_a_plan_for_an_account_asks_it_for_spot_prices(detached: Detached) -> None:
    command = Commands(detached.folder, account_of(detached.folder, detached.run_id))
    plan = command.json("plan", "spec.yaml", "--place", "twin")
    (candidate,) = plan["candidates"]
    assert (plan["region"], plan["spot_trouble"], candidate["spot_zone"][:-1]) == ("us-west-2", None, "us-west-2")
    assert candidate["spot_usd_per_hour"] is not None


@pytest.mark.parametrize("says", ["environment", "file"])
def test_a_plan_is_made_for_the_default_place_and_names_it(detached: Detached, tmp_path: Path, says: str) -> None:
    environment = {**account_of(detached.folder, detached.run_id), "XDG_CONFIG_HOME": str(tmp_path)}
    if says == "environment":
        environment["TRAINFLOW_PLACE"] = "twin"
    else:
        (tmp_path / "trainflow").mkdir()
        (tmp_path / "trainflow" / "config.toml").write_text('default = "mine"\n[places.mine]\ndeployment = "twin"\n')
    command = Commands(detached.folder, environment)
    plan = command.json("plan", "spec.yaml")
    assert (plan["place"], plan["planned_trouble"], plan["problems"]) == ("twin", None, [])
    assert command("plan", "spec.yaml").startswith("place     twin\nrun       ")


def test_a_plan_without_a_default_asks_no_place(detached: Detached) -> None:
    """Although the account has one deployment alone, which other commands take: a plan needs no network."""
    command = Commands(detached.folder, account_of(detached.folder, detached.run_id))
    plan = command.json("plan", "spec.yaml")
    assert (plan["place"], plan["jobs"]) == (None, None)
    assert plan["planned_trouble"].startswith("name the twin (--local) or a deployment (--place)")


def test_a_plan_shows_what_a_run_would_create_and_creates_nothing(detached: Detached) -> None:
    """The objects are those that a run of the same spec has been given, and the account is as it was before."""
    command = Commands(detached.folder, account_of(detached.folder, detached.run_id))
    before = everything_of(detached)
    plan = command.json("plan", "spec.yaml", "--place", "twin")
    rendered = list(yaml.safe_load_all(command("plan", "spec.yaml", "--place", "twin", "--objects")))
    assert everything_of(detached) == before
    assert (plan["problems"], plan["planned_trouble"]) == ([], None)
    assert [job["stage"] for job in plan["jobs"]] == ["preflight", "training", "publish"]
    own = ["Service", "Job"]
    assert [found["kind"] for found in rendered] == [*own, "NetworkPolicy", *own, *own]
    assert plan["events"]["events"] < plan["events"]["quota"]

    job = plan["jobs"][1]["objects"][-1]
    planned_id = job["metadata"]["labels"][RUN_LABEL]
    assert planned_id != detached.run_id
    address = read_address(detached.folder / "out" / detached.run_id)
    assert address is not None
    api = ApiClient(load_connection(Path(address.kubeconfig)))
    made = api.get(f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs/{detached.run_id}-training-1")
    (planned_container,) = job["spec"]["template"]["spec"]["containers"]
    (made_container,) = made["spec"]["template"]["spec"]["containers"]
    words = [without_port(word.replace(planned_id, detached.run_id)) for word in planned_container["command"]]
    assert words == [without_port(word) for word in made_container["command"]]
    assert planned_container["resources"] == made_container["resources"]


def test_a_plan_in_the_twin_leaves_no_run_and_no_object(tmp_path: Path) -> None:
    write_spec(tmp_path, max_steps=10)
    command = Commands(tmp_path, alone=True)
    plan = command.json("plan", "spec.yaml", "--local")
    assert (plan["problems"], plan["planned_trouble"]) == ([], None)
    assert [job["stage"] for job in plan["jobs"]] == ["preflight", "training", "publish"]
    assert command.json("list", "--local") == []
    left = [path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()]
    assert set(left) <= {Path("spec.yaml"), Path(".trainflow/caches.json")}, "no object, log or record"


def without_port(word: str) -> str:
    """A word of the command; the port of the rendezvous in its plan is made of the job's name."""
    return re.sub(r'"port": \d{5}', '"port": PORT', word)


def test_a_plan_names_what_keeps_a_run_from_starting(detached: Detached) -> None:
    command = Commands(detached.folder, account_of(detached.folder, detached.run_id))
    (detached.folder / "wrong.yaml").write_text("compute: {num_nodes: 17}\ndataset: {url: s3://nowhere/data.tar}\n")
    shown = command("plan", "spec.yaml", "--override", "wrong.yaml", "--place", "twin")
    assert "The run could not start:\n  - compute.num_nodes is 17" in shown
    assert "s3://nowhere/data.tar" in shown
    assert "training" in shown


def everything_of(detached: Detached) -> dict[str, Any]:
    """Executions, items, objects and Kubernetes objects of an account, but those of the run that goes on."""
    address = read_address(detached.folder / "out" / detached.run_id)
    assert address is not None
    client = partial(client_of, account_of(detached.folder, detached.run_id))

    def others(names: Iterable[str]) -> list[str]:
        return sorted(name for name in names if detached.run_id not in name)

    machines = client("stepfunctions").list_state_machines()["stateMachines"]
    training = next(machine["stateMachineArn"] for machine in machines if machine["name"].endswith("-training"))
    executions = client("stepfunctions").list_executions(stateMachineArn=training)["executions"]
    items = [client("dynamodb").scan(TableName=name)["Items"] for name in (RUN_TABLE, CACHE_TABLE)]
    s3 = client("s3")
    objects = [
        found["Key"]
        for bucket in s3.list_buckets()["Buckets"]
        for found in s3.list_objects_v2(Bucket=bucket["Name"]).get("Contents", ())
    ]
    api = ApiClient(load_connection(Path(address.kubeconfig)))
    core = [f"/api/v1/{{}}/{name}" for name in ("pods", "services", "configmaps")]
    kinds = ["/apis/batch/v1/{}/jobs", "/apis/networking.k8s.io/v1/{}/networkpolicies", *core]
    found = [api.get(kind.format(f"namespaces/{NAMESPACE}"))["items"] for kind in kinds]
    return {
        "executions": others(each["name"] for each in executions),
        "items": others(str(each.get("run_id") or each["cache_key"]) for listed in items for each in listed),
        "objects": others(objects),
        "kubernetes": others(each["metadata"]["name"] for listed in found for each in listed),
    }


def test_the_page_of_a_deployment_shows_a_run_to_its_end(detached: Detached) -> None:
    """With nothing but an account's endpoints and credentials: which state, which loss, which node, what cost."""
    folder = detached.folder
    spec = steps_spec(max_steps=250, seconds_per_step=0.1) | {"name": "shown"}
    spec["compute"] = {"instance_type": "c7i.xlarge", "num_nodes": 1, "processes_per_node": 1}
    (folder / "shown.yaml").write_text(yaml.safe_dump(spec))
    command = Commands(folder, account_of(folder, detached.run_id))
    with chromium() as browser:
        from playwright.sync_api import expect

        run_id = command("run", "shown.yaml", "--place", "twin", "--detach").splitlines()[-1]
        serving = command.begin("ui", "--place", "twin")
        assert serving.stdout is not None
        address = serving.stdout.readline().removeprefix("page").strip()
        with opened(browser) as page:
            page.goto(address)
            expect(page.get_by_role("link", name=detached.run_id)).to_be_visible()
            page.get_by_role("link", name=run_id).click()
            figures, pods = page.locator("#figures"), page.locator("#pods")
            expect(page.locator(".state-current .state-name")).to_have_text("WatchTraining")
            expect(figures).to_contain_text(re.compile(r"Step\s+\d+\s+of 250, \d+%"))
            expect(figures).to_contain_text(re.compile(r"Loss\s+[678]\.\d+"))
            expect(figures).to_contain_text(re.compile(r"Training done in\s.* at the present speed", re.DOTALL))
            expect(figures).to_contain_text(re.compile(r"Cost so far, estimated\s+(\$|< \$)"))
            expect(figures).to_contain_text(re.compile(r"Nodes\s+1\s+c7i-xlarge-\d"))
            expect(pods.get_by_role("row", name="training-1-0")).to_contain_text(
                re.compile(r"Running\s+Log\s+c7i-xlarge-\d")
            )
            expect(page.locator(".pill")).to_have_text(re.compile("^Succeeded"))
            expect(figures).to_contain_text(re.compile(r"Loss\s+6\.5"))
            expect(figures).to_contain_text(re.compile(r"Cost, estimated\s+(\$|< \$)"))
        serving.send_signal(signal.SIGINT)
        _, said = serving.communicate(timeout=PATIENCE)
        assert said == ""
        assert serving.returncode == 0
    watched = command("watch", run_id, "--place", "twin")
    assert f"Run succeeded with warnings: {run_id}\n" in watched, "it trained, and kept nothing"
    assert watched.endswith(f"report         out/{run_id}/report.html\n")
    assert (folder / "out" / run_id / "report.html").read_text().startswith("<!doctype html>")
    log = command("logs", run_id, "--place", "twin", "--follow")
    assert "(0, 250) step_loss : 6.5000" in log.splitlines()[-1]


@pytest.mark.slow
def test_a_run_that_fails_in_an_account_is_explained_where_it_was_started(detached: Detached) -> None:
    folder, run_id = detached.folder, detached.run_id
    (folder / "fails.py").write_text("raise SystemExit('the data are not here')\n")
    spec = steps_spec() | {"name": "fails", "limits": {"max_restarts": 0}}
    spec["compute"] = {"instance_type": "c7i.xlarge"}
    spec["workload"] = {"script": "fails.py", "code": ".", "image": "python:3.12", "launcher": "none"}
    (folder / "fails.yaml").write_text(yaml.safe_dump(spec))
    shown = Commands(folder, account_of(folder, run_id))("run", "fails.yaml", "--out", "account", status=2)
    (record_file,) = (folder / "account").glob("fails-*/run.json")
    record = json.loads(record_file.read_text())
    error = record["error"]
    started_at, ended_at = (datetime.fromisoformat(record[name]) for name in ("started_at", "ended_at"))
    expected = [
        f"Run failed: {record_file.parent.name}",
        f"error          {error['name']}",
        f"what happened  {error['message']}",
        f"evidence       pod {error['pod']}",
        *(f"  {line}" for line in error["excerpt"]),
        f"what to do     {error['what_to_do']}",
        f"duration       {duration((ended_at - started_at).total_seconds())}",
        f"report         account/{record_file.parent.name}/report.html",
    ]
    assert shown.splitlines()[-len(expected) :] == expected
    command, fails = Commands(folder, account_of(folder, run_id)), record_file.parent.name
    assert f"Run failed: {fails}\n" in command("watch", fails, "--out", "account", status=1)
    assert command("logs", fails, "--follow", status=1) == "the data are not here\n"


def test_ctrl_c_on_a_terminal_asks_and_a_detached_run_goes_on(detached: Detached) -> None:
    assert detached.status == 0
    assert f"trainflow watch {detached.run_id} --local" in detached.shown
    (run,) = Commands(detached.folder).json("list", "--local")
    assert run["status"] == "RUNNING"
    assert (detached.folder / "out" / detached.run_id / "console.log").exists()


def test_a_run_is_stopped_from_another_process(detached: Detached) -> None:
    """The last one of those that share the run."""
    command, run_id = Commands(detached.folder), detached.run_id
    following = command.begin("logs", run_id, "--local", "--follow", "--since", "1s")
    assert following.stdout is not None
    assert "step_loss" in following.stdout.readline()
    assert command("stop", run_id, "--local") == f"Stopped {run_id}.\n"
    _, said = following.communicate(timeout=PATIENCE)
    outcome = f"The run {run_id} has ended: ABORTED.\nAborted: The run was stopped with `trainflow stop`.\n"
    assert (following.returncode, said.startswith(outcome)) == (1, True), said
    assert processes_of(run_id) == []
    found = json.loads(command("status", run_id, "--local", "--json", status=1))
    assert (found["status"], found["error"]["message"]) == (
        "ABORTED",
        "The run was stopped with `trainflow stop`.",
    )
    assert command("report", run_id, "--local") == f"out/{run_id}/report.html\n"
    watched = command("watch", run_id, "--local", status=1)
    assert f"Run stopped: {run_id}\n" in watched
    assert watched.endswith(f"report         out/{run_id}/report.html\n")
    whole = command("logs", run_id, "--local").splitlines()
    latest = command("logs", run_id, "--local", "--since", (datetime.now(UTC) - timedelta(minutes=1)).isoformat())
    assert set(latest.splitlines()) <= set(whole)
    assert command("logs", run_id, "--local", "--since", "1d").splitlines() == whole
    assert command("logs", run_id, "--local", "--since", datetime.now(UTC).isoformat()) == ""
    assert command("stop", run_id, "--local") == f"{run_id} has ended already: ABORTED.\n"


def test_a_spec_that_is_refused_starts_nothing_in_the_background(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("version: 1\n")
    command = Commands(tmp_path)
    assert command("run", "spec.yaml", "--local", "--detach", status=2) == ""
    assert command.json("list", "--local") == []


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """A run in a terminal that has just begun."""
    write_spec(tmp_path, max_steps=100_000, seconds_per_step=0.1)
    command = Commands(tmp_path)
    with Terminal(command.words("run", "spec.yaml", "--local"), tmp_path, command.environment) as shown:
        shown.wait_for("page  http://127.0.0.1", seconds=PATIENCE)
        yield shown
        for run in command.json("list", "--local"):
            command("stop", run["run_id"], "--local")


@pytest.mark.slow
def test_ctrl_c_and_stop_leave_a_record(terminal: Terminal, tmp_path: Path) -> None:
    terminal.type("\x03")
    terminal.wait_for("Stop the run")
    terminal.type("s\n")
    assert terminal.wait() == 130
    record = json.loads((tmp_path / "out" / "latest" / "run.json").read_text())
    assert (record["status"], record["error"]["message"]) == ("ABORTED", "The run was stopped from the keyboard.")


@pytest.mark.slow
def test_a_run_goes_on_when_its_terminal_is_closed(terminal: Terminal, tmp_path: Path) -> None:
    terminal.close()
    command = Commands(tmp_path)
    (run,) = command.json("list", "--local")
    until(lambda: (command.json("status", run["run_id"], "--local")["step"] or 0) > 2)


def test_a_run_ends_with_the_process_that_shows_it_when_that_is_killed(terminal: Terminal, tmp_path: Path) -> None:
    children = psutil.Process(terminal.pid).children(recursive=True)
    os.kill(terminal.pid, signal.SIGKILL)
    until(lambda: not any(child.is_running() and child.status() != psutil.STATUS_ZOMBIE for child in children))
    record = json.loads((tmp_path / "out" / "latest" / "run.json").read_text())
    assert record["error"]["message"] == "The run was stopped by the signal SIGTERM."


def test_tensorboard_shows_what_runs_have_published(tmp_path: Path) -> None:
    for run_id in ("a-1", "a-2"):
        leave_run(tmp_path / "out", run_id)
    write_events(tmp_path / ".trainflow/s3/trainflow-artifacts/runs/a-1/events")
    here = Commands(tmp_path)
    with Terminal(here.words("tensorboard", "a-1", "a-2", "--local"), tmp_path, here.environment) as terminal:
        terminal.wait_for("a-2 has published no TensorBoard events.")
        terminal.wait_for("(Press CTRL+C to quit)")
        address = re.search(r"http://127\.0\.0\.1:\d+/", terminal.shown)
        assert address is not None, terminal.shown
        assert until(lambda: json.loads(urlopen(f"{address[0]}data/runs").read())) == ["a-1/events"]
        terminal.type("\x03")
        assert terminal.wait() == 130
    assert here("tensorboard", "a-2", "--local", status=2) == ""
