"""The runbook of a run, as a person pastes it: each section's commands on a run in that situation."""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from kubetwin.client import ApiClient
from kubetwin.kubeconfig import load_connection
from kubetwin.node.shape import write_shape
from kubetwin_testing.cluster import command, eventually
from typer.testing import CliRunner

from lambdas.backends.kubernetes.pods import NODEGROUP_LABEL
from lambdas.backends.registry import KINDS
from lambdas.logic.jobs import job_of
from local.node_shapes import instance_shape
from local.shared_storage import offer
from local.twin import REPOSITORY
from tests.fakes.moments import failed_with, moments
from tests.fakes.runs import run_on
from tests.fakes.standing_place import StandingPlace
from tests.integration.api_paths import collection
from trainflow.cli.main import app
from trainflow.failures.error_table import error_table
from trainflow.kubernetes.api import KubernetesApi
from trainflow.kubernetes.connection import from_kubeconfig
from trainflow.nodes.instances import INSTANCE_TYPES, nodegroup_name
from trainflow.record.situation import Kind, situation
from trainflow.workflow.run import Stage

pytestmark = pytest.mark.lengthy

TEXT = (REPOSITORY / "docs" / "runbook-runs.md").read_text()
SECTIONS = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^##|\Z)", TEXT, re.MULTILINE | re.DOTALL))
MOMENTS = {situation(state).kind.value: state for state in moments().values()}
STATES = {**MOMENTS, **{error.name: failed_with(error) for error in error_table().values()}}
OUTCOMES = {"status": {0, 1}, "doctor": {0, 1}}
"""Exit statuses of commands that may report a fault."""


def test_every_situation_and_every_error_has_a_section_and_a_run() -> None:
    assert set(SECTIONS) == {*(kind.value for kind in Kind), *error_table()} == set(STATES)


def commands(section: str) -> list[list[str]]:
    (block,) = re.findall(r"```console account\n(.*?)```", SECTIONS[section], re.DOTALL)
    return [shlex.split(line)[1:] for line in block.splitlines()]


@pytest.fixture(scope="module")
def pods(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[KubernetesApi, str, str]]:
    """A cluster with the pods of a run, its namespace and the run's id."""
    folder = tmp_path_factory.mktemp("cluster")
    write_shape(folder / "shape.json", instance_shape(INSTANCE_TYPES["trn1.32xlarge"]))
    group = f"{NODEGROUP_LABEL}={nodegroup_name('trn1.32xlarge')}"
    options = ("--nodes", "2", "--shape", str(folder / "shape.json"), "--label", group)
    with command("--state", str(folder), *options) as (_, ready):
        kubeconfig, namespace = Path(ready["kubeconfig"]), f"t-{uuid.uuid4().hex[:8]}"
        api = ApiClient(load_connection(kubeconfig))
        offer(api, folder / "shared", namespace=namespace)
        run = run_on("job")
        job = job_of(run, Stage.TRAINING, 1, artifacts_url="s3://artifacts/runs/x/")
        sleeping = replace(job, plan=None, command=("sh", "-c", "exec sleep 600"))
        for manifest in KINDS["job"].render(sleeping):
            api.create(collection(manifest, namespace), manifest)
        path = f"/api/v1/namespaces/{namespace}/pods"
        eventually(
            lambda: [pod["status"]["phase"] for pod in api.get(path)["items"]] == ["Running"] * 2, "both pods run"
        )
        yield KubernetesApi(from_kubeconfig(kubeconfig)), namespace, run.run_id


@pytest.mark.parametrize("section", SECTIONS)
def test_the_commands_of_a_section_work_on_a_run_in_that_state(
    section: str, pods: tuple[KubernetesApi, str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    api, namespace, run_id = pods
    state = replace(STATES[section], run_id=run_id)
    place = StandingPlace(state, api=api, namespace=namespace)
    for module in ("place", "commands", "sweep", "top"):
        monkeypatch.setattr(f"trainflow.cli.operate.{module}.open_reader", lambda **_: place)
    monkeypatch.setattr("trainflow.client.places.open_deployment", lambda _: place)
    monkeypatch.chdir(tmp_path)
    replaced = {"RUN": run_id, "SPEC": str(REPOSITORY / "runs" / "demo.yaml")}

    typed = commands(section)

    assert typed
    for words in typed:
        answer = CliRunner().invoke(app, [replaced.get(word, word) for word in words])
        assert answer.exit_code in OUTCOMES.get(words[0], {0}), f"{words}: {answer.output}"
        assert answer.output
        if words[0] == "status":
            assert situation(state).headline in answer.output
        if words[0] == "resume":
            assert place.started
