"""Files that are generated are those that their source gives."""

from __future__ import annotations

import json
from pathlib import Path

from trainflow.cli.spec_reference import spec_reference
from trainflow.models.run_spec import RunSpec


def test_the_json_schema_is_the_models() -> None:
    assert json.loads(Path("config/run-spec.schema.json").read_text()) == RunSpec.model_json_schema()


def test_the_reference_is_the_models() -> None:
    assert Path("docs/run-spec.md").read_text().rstrip() == spec_reference()
