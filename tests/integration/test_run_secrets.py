"""Values of Secrets Manager in the twin: the program has them, and nothing that is kept or shown does."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from local.twin import Twin
from tests.integration.running import follow_run
from trainflow.spec.run_spec import parse_run_spec
from trainflow.workflow.run_record import RunRecord

VALUE = "hf_4711_do_not_show"
PROGRAM = f"""
import os
print("value", "as expected" if os.environ["HF_TOKEN"] == "{VALUE[::-1]}"[::-1] else "of another kind", flush=True)
"""

Run = Callable[..., RunRecord]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("secrets")


@pytest.fixture(scope="module")
def twin(folder: Path) -> Iterator[Twin]:
    secrets = folder / "home/secrets/team"
    secrets.mkdir(parents=True)
    (secrets / "hub").write_text(json.dumps({"token": VALUE}) + "\n")
    (secrets / "gone").write_text("deleted by its test\n")
    (folder / "image").mkdir()
    (folder / "image/train.py").write_text(PROGRAM)
    with Twin(home=folder / "home", log_dir=folder / "logs", time_scale=60, image_root=folder / "image") as running:
        yield running


@pytest.fixture
def run(twin: Twin, folder: Path) -> Run:
    def start(run_id: str, secret: dict[str, str]) -> RunRecord:
        spec: dict[str, Any] = {
            "version": 1,
            "name": "steps",
            "workload": {"script": "train.py", "image": "any", "launcher": "none", "secrets": {"HF_TOKEN": secret}},
            "compute": {"instance_type": "trn1.2xlarge"},
            "precompile": {"enabled": False},
        }
        console = Console(file=io.StringIO())
        return follow_run(twin, parse_run_spec(spec), run_id, folder=folder / run_id, console=console)

    return start


def history(twin: Twin, run_id: str) -> str:
    """Everything that Step Functions kept of a run."""
    client = twin.client("stepfunctions")
    machines = client.list_state_machines()["stateMachines"]
    kept = []
    for machine in machines:
        for found in client.list_executions(stateMachineArn=machine["stateMachineArn"])["executions"]:
            if run_id in found["name"]:
                kept.append(client.describe_execution(executionArn=found["executionArn"]))
                pages = client.get_paginator("get_execution_history")
                kept.extend(pages.paginate(executionArn=found["executionArn"]))
    return json.dumps(kept, default=str)


def test_a_program_has_the_value_and_no_record_history_or_log_does(run: Run, twin: Twin, folder: Path) -> None:
    record = run("good-0000000000aa", {"secrets_manager": "team/hub", "key": "token"})
    assert (record.status, record.error) == ("SUCCEEDED", None)
    files = [path for path in (folder / record.run_id, folder / "logs") for path in path.rglob("*") if path.is_file()]
    texts = [path.read_text(errors="replace") for path in files]
    kept = history(twin, record.run_id)
    assert any("value as expected" in text for text in texts)
    assert "team/hub" in kept
    assert not [text for text in (*texts, kept) if VALUE in text]


def test_a_secret_that_is_not_there_ends_the_run_before_a_node_is_asked_for(run: Run, twin: Twin) -> None:
    """Of a secret that runs may not read, Secrets Manager does not say whether it is there."""
    client = twin.client("secretsmanager")
    granted = client.delete_secret(SecretId="team/gone", ForceDeleteWithoutRecovery=True)["ARN"]
    record = run("gone-0000000000aa", {"secrets_manager": granted})
    assert record.error is not None
    assert record.error.name == "PreflightFailed"
    assert record.error.message.startswith(
        f"workload.secrets.HF_TOKEN: Secrets Manager has no secret '{granted}' with a value in the Region of the run; "
        "create it, or correct the spec. (pod '"
    )
    assert set(record.jobs) == {"preflight"}, "no node was asked for"
