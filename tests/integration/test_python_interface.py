"""The interface for programs: the same calls for a run of this machine and for one of an account."""

from __future__ import annotations

from itertools import islice
from pathlib import Path

import pytest

from local.twin import Twin
from tests.integration.commands import OTHERS, until
from tests.integration.test_resume import LAST_STEP, SPEC, write_project
from trainflow.client import Client, connect, this_machine
from trainflow.client.place import LOCAL, RunNotFound
from trainflow.errors import InvalidRunSpec
from trainflow.workflow.run_status import RunStatus

CHANGES = {"workload": {"arguments": {"seconds_per_step": 0, "max_steps": LAST_STEP}}}


@pytest.fixture(params=["this machine", "account"])
def client(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Client:
    monkeypatch.chdir(tmp_path)
    write_project(tmp_path)
    if request.param == "this machine":
        return this_machine()
    account: Twin = request.getfixturevalue("account")
    for name, value in {**account.aws.client_environment, "XDG_CONFIG_HOME": str(tmp_path)}.items():
        assert name.startswith((*OTHERS, "XDG_"))
        monkeypatch.setenv(name, value)
    return connect()


@pytest.mark.slow
def test_a_program_starts_reads_stops_and_continues_a_run(client: Client, tmp_path: Path) -> None:
    # A document there, a file here.
    run = client.start(SPEC if client.name == LOCAL else "spec.yaml")
    assert [(each.run_id, each.status) for each in client.runs()] == [(run.run_id, RunStatus.RUNNING)]
    until(lambda: any(each.step > 10 for each in run.metrics()))
    shown = run.status()
    assert (shown.state, shown.error, shown.trouble) == ("WatchTraining", None, None)
    assert shown.step is not None and shown.loss is not None
    assert [pod.stage for pod in shown.pods if pod.phase == "Running"] == ["training"]
    assert all('"step"' in line for line in islice(run.logs(follow=True), 2))

    assert tmp_path / "early" / "steps.json" in run.pull(tmp_path / "early"), "while it runs"

    run.stop()
    run.stop()
    ended = client.run(run.run_id).wait()
    assert (ended.status, ended.error and ended.error.name) == (RunStatus.ABORTED, "Aborted")
    assert {"ValidateRun", "Preflight", "WatchTraining"} <= {visit.name for visit in run.states()}

    second = run.resume(changes=CHANGES)
    record = second.wait(poll_seconds=0.5)
    assert (record.status, record.error) == (RunStatus.SUCCEEDED, None)
    assert record.spec["resume_from"] == [run.run_id]
    steps = [each.step for each in second.metrics()]
    assert (min(steps) > 5, max(steps)) == (True, LAST_STEP)
    assert second.run_id in second.report()
    copies = second.pull(tmp_path / "copies")
    assert [path.is_file() for path in copies] == [True] * len(second.artifacts()) != []


def test_what_is_at_fault_is_said_before_anything_starts(client: Client) -> None:
    with pytest.raises(InvalidRunSpec, match=r"^The spec: .*num_nods: .*no such field"):
        client.start({"version": 1, "name": "a", "num_nods": 2})
    with pytest.raises(InvalidRunSpec, match=r"^nowhere\.yaml"):
        client.start("nowhere.yaml")
    with pytest.raises(RunNotFound):
        client.run("steps-0123456789ab")
    assert client.runs() == []
