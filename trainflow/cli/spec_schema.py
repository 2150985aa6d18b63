"""The JSON Schema of run specs, from which editors complete and check them."""

from __future__ import annotations

import json
from pathlib import Path

from trainflow.errors import InvalidRunSpec
from trainflow.models.run_spec import RunSpec

SCHEMA_FILE = "trainflow.schema.json"
"""Its file beside a spec: a path that resolves for everyone who has the folder, wherever Trainflow is installed, and
without a network."""


def schema_text() -> str:
    """The content of the file."""
    return json.dumps(RunSpec.model_json_schema(), indent=2) + "\n"


def write_schema(folder: Path) -> None:
    """Write the schema that the specs of a folder name in their first line, anew if it is there.

    Raises:
        InvalidRunSpec: If it cannot be written.
    """
    path = folder / SCHEMA_FILE
    try:
        path.write_text(schema_text(), encoding="utf-8")
    except OSError as error:
        raise InvalidRunSpec(f"{path} cannot be written ({error.strerror}); name another folder with --out.") from None
