"""JSON Schema beside a spec; editors complete and check the spec by it."""

from __future__ import annotations

from pathlib import Path

from trainflow.cli.schemas import schema_text
from trainflow.client.whole_files import write_text
from trainflow.errors import InvalidRunSpec

SCHEMA_FILE = "trainflow.schema.json"
"""Its file beside a spec: a path that resolves for everyone who has the folder, wherever Trainflow is installed, and
without a network."""


def write_schema(folder: Path) -> None:
    """Write the schema that the specs of a folder name in their first line, anew if it is there.

    Raises:
        InvalidRunSpec: If it cannot be written.
    """
    path = folder / SCHEMA_FILE
    try:
        write_text(path, schema_text())
    except OSError as error:
        raise InvalidRunSpec(f"{path} cannot be written ({error.strerror}); name another folder with --out.") from None
