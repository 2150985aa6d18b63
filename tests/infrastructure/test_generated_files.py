"""Files that are generated are those that their source gives."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator

from stacks.tools import instance_types
from tests import nightly
from trainflow.cli.error_reference import error_reference
from trainflow.cli.instance_reference import instance_reference
from trainflow.cli.runbook_reference import runbook_reference
from trainflow.cli.schema_names import SchemaOf
from trainflow.cli.schemas import build_schema
from trainflow.cli.spec_reference import spec_reference

CONFIG = Path("config")


@pytest.mark.parametrize("what", [one for one in SchemaOf if one is not SchemaOf.COMMAND_OUTPUT])
def test_a_json_schema_is_the_models(what: SchemaOf) -> None:
    schema = json.loads((CONFIG / what.file_name).read_text())
    assert schema == build_schema(what)
    assert schema["$id"] == f"urn:trainflow:{what.value}:1"
    Draft202012Validator.check_schema(schema)


@cache
def editor(what: SchemaOf) -> Draft202012Validator:
    """What an editor checks files of this kind with."""
    return Draft202012Validator(build_schema(what))


FILES = {
    SchemaOf.RUN_SPEC: [*Path("runs").glob("*.yaml"), *Path("examples").glob("*/spec.yaml")],
    SchemaOf.OVERRIDE: list(Path("runs/overrides").glob("*.yaml")),
    SchemaOf.CONFIGURATION: [Path("config/example.yaml")],
}


@pytest.mark.parametrize(("what", "path"), [(what, path) for what, paths in FILES.items() for path in paths], ids=str)
def test_an_editor_finds_the_schema_of_a_file_and_nothing_to_correct(what: SchemaOf, path: Path) -> None:
    first = path.read_text().partition("\n")[0]
    named = first.removeprefix("# yaml-language-server: $schema=")
    assert (path.parent / named).resolve() == (CONFIG / what.file_name).resolve()
    found = editor(what).iter_errors(yaml.safe_load(path.read_text()))
    assert [(error.json_path, error.message) for error in found] == []


@pytest.mark.parametrize(
    ("override", "problem"),
    [
        ({"compute": {"num_node": 2}}, "'num_node' was unexpected"),
        ({"compute": {"num_nodes": "two"}}, "'two' is not valid"),
        ({"limits": {"max_restarts": None}, "workload": {"arguments": {"lr": None}}}, None),
    ],
)
def test_an_editor_corrects_an_override(override: dict[str, Any], problem: str | None) -> None:
    found = [error.message for error in editor(SchemaOf.OVERRIDE).iter_errors(override)]
    leaves = [
        error.message
        for each in editor(SchemaOf.OVERRIDE).iter_errors(override)
        for error in (each, *(each.context or ()))
    ]
    assert bool(found) == (problem is not None)
    assert problem is None or any(problem in message for message in leaves), leaves


def test_the_reference_is_the_models() -> None:
    assert Path("docs/run-spec.md").read_text().rstrip() == spec_reference()


def test_the_reference_of_instance_types_is_the_data_files() -> None:
    assert Path("docs/instance-types.md").read_text().rstrip() == instance_reference()


def test_the_reference_of_errors_is_the_table() -> None:
    assert Path("docs/errors.md").read_text() == error_reference()


def test_the_runbook_of_a_run_is_the_tables() -> None:
    assert Path("docs/runbook-runs.md").read_text() == runbook_reference()


def test_the_instance_types_are_what_ec2_describes() -> None:
    assert Path("trainflow/nodes/instance_types.json").read_text() == instance_types.text()


def test_the_page_of_long_proofs_shows_the_stored_results() -> None:
    assert nightly.PAGE.read_text() == nightly.page(nightly.stored())
