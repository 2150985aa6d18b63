"""What commands print with `--json` is documented: in a schema for programs and in words for people."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from jsonschema import Draft202012Validator
from recorded_runs import recorded
from typer.testing import CliRunner

from tests.command_output import COMMANDS, OUTPUT, require_documented
from tests.fakes.runs import SPEC
from trainflow.cli.account import document
from trainflow.cli.account.findings import fine
from trainflow.cli.doctor.findings import Finding, Outcome
from trainflow.cli.documents import DOCUMENTS
from trainflow.cli.json_output import VERSION
from trainflow.cli.main import app
from trainflow.client.files import write_record, write_steps
from trainflow.configuration.deployment import load_configuration
from trainflow.observed.step import Step
from trainflow.workflow.leftovers import HeldObject, LeftoverState, RunLeftovers, SweepReport

DOCUMENTED = (DOCUMENTS / "commands.md").read_text().partition("\n## JSON\n")[2].partition("\n## ")[0]


def test_every_command_with_the_option_has_a_schema() -> None:
    group = typer.main.get_command(app)
    commands = group.commands  # type: ignore[attr-defined]
    assert {name for name, one in commands.items() if any("--json" in option.opts for option in one.params)} == COMMANDS
    Draft202012Validator.check_schema(OUTPUT)


def fields_of(schema: Any) -> Iterator[str]:
    """Names of all fields in a schema, those of what it refers to included."""
    if isinstance(schema, list):
        for inner in schema:
            yield from fields_of(inner)
    elif isinstance(schema, dict):
        yield from schema.get("properties", {})
        for inner in schema.values():
            yield from fields_of(inner)
        reference = schema.get("$ref", "")
        if reference.startswith("#/$defs/") and reference.rpartition("/")[2] not in COMMANDS:
            yield from fields_of(OUTPUT["$defs"][reference.rpartition("/")[2]])


def described(command: str) -> str:
    """What the page says of a command's document."""
    items = re.split(r"\n\* ", DOCUMENTED)[1:]
    found = [item for item in items if f"`{command}`" in item.partition(":")[0]]
    assert len(found) == 1, f"docs/commands.md describes the JSON of {command} {len(found)} times"
    text = found[0]
    if link := re.search(r"\]\(([\w-]+\.md)\)", text):
        text += (DOCUMENTS / link[1]).read_text().replace('"', "`")
    return text


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_field_is_described_for_people(command: str) -> None:
    text = described(command)
    assert [name for name in dict.fromkeys(fields_of(OUTPUT["$defs"][command])) if f"`{name}`" not in text] == []


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder with an ended run of each kind, and with a spec."""
    monkeypatch.chdir(tmp_path)
    for name in ("succeeded", "worker_failed"):
        run = recorded(name)
        record = run.record()
        folder = tmp_path / "out" / name
        write_record(record, folder / "run.json")
        step = Step(
            logged_at=record.started_at,
            epoch=0,
            step=1,
            loss=float("nan"),
            learning_rate=1e-4,
            throughput=None,
            metrics={"images_per_second": 3.0},
        )
        write_steps([step], folder / "steps.json")
        for job in record.jobs.values():
            for pod in job.pods:
                (folder / "logs").mkdir(exist_ok=True)
                (folder / "logs" / f"{pod.name}.log").write_text("first \u2028 ä\nsecond\n")
    published = tmp_path / ".trainflow" / "s3" / "bucket" / "runs" / "succeeded"
    published.mkdir(parents=True)
    (published / "model.bin").write_bytes(b"1")
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(SPEC))
    return tmp_path / "out"


@pytest.mark.usefixtures("out")
@pytest.mark.parametrize(
    ("words", "status"),
    [
        ("list --local", 0),
        ("status succeeded --local", 0),
        ("status worker_failed --local", 1),
        ("top --local", 0),
        ("metrics succeeded --local", 0),
        ("compare succeeded worker_failed --local", 0),
        ("report succeeded worker_failed --local", 0),
        ("artifacts succeeded --local", 0),
        ("validate spec.yaml", 0),
        ("validate absent.yaml", 2),
        ("grid spec.yaml --over workload.arguments.lr=1e-4,3e-4 --dry-run --local", 0),
    ],
)
def test_what_a_command_prints_is_documented(words: str, status: int) -> None:
    answer = CliRunner().invoke(app, [*words.split(), "--json"])
    assert answer.exit_code == status, answer.output
    require_documented(words.split()[0], json.loads(answer.stdout))


@pytest.mark.usefixtures("out")
def test_each_line_of_a_log_is_a_document() -> None:
    answer = CliRunner().invoke(app, ["logs", "succeeded", "--local", "--rank", "1", "--json"])
    documents = [json.loads(line) for line in answer.stdout.split("\n")[:-1]]
    of = {"run_id": "succeeded", "rank": 1, "pod": None}
    assert documents == [{**of, "line": "first \u2028 ä"}, {**of, "line": "second"}]
    for each in documents:
        require_documented("logs", each)


def test_what_was_swept_and_examined_and_checked_is_documented() -> None:
    left = RunLeftovers(
        run_id="a", state=LeftoverState.LEFT, objects=(HeldObject(kind="Pod", name="a-0"),), usd_per_hour=None
    )
    swept = SweepReport(deleted=True, runs=(left,), nodes_released={"trn1.32xlarge": 2}, trouble=("b",))
    require_documented("sweep", swept.model_dump(mode="json"))
    finding = asdict(Finding(check="pods", outcome=Outcome.OK, seen="two pods"))
    require_documented("doctor", {"version": VERSION, "run_id": "a", "findings": [finding]})
    path = Path("config/example.yaml")
    require_documented("check-account", document(path, load_configuration(path), [fine("quotas", "vCPUs are free")]))


def test_a_field_that_is_not_documented_is_noticed() -> None:
    with pytest.raises(AssertionError, match="further"):
        require_documented("places", [{"name": "local", "what": "the twin", "further": 1}])
