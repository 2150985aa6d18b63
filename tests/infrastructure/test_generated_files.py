"""Files that are generated are those that their source gives."""

from __future__ import annotations

import json
from pathlib import Path

from stacks.tools import instance_types
from trainflow.cli.instance_reference import instance_reference
from trainflow.cli.spec_reference import spec_reference
from trainflow.models.run_ended import RunEnded
from trainflow.models.run_spec import RunSpec


def test_the_json_schema_is_the_models() -> None:
    assert json.loads(Path("config/run-spec.schema.json").read_text()) == RunSpec.model_json_schema()


def test_the_json_schema_of_the_event_is_the_models() -> None:
    schema = json.loads(Path("config/run-ended.schema.json").read_text())
    assert schema == RunEnded.model_json_schema(mode="serialization")


def test_the_reference_is_the_models() -> None:
    assert Path("docs/run-spec.md").read_text().rstrip() == spec_reference()


def test_the_reference_of_instance_types_is_the_data_files() -> None:
    assert Path("docs/instance-types.md").read_text().rstrip() == instance_reference()


def test_the_instance_types_are_what_ec2_describes() -> None:
    assert Path("trainflow/models/instance_types.json").read_text() == instance_types.text()
