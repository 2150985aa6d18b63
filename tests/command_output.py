"""Compares what commands print with `--json` with the schema of it, to the last field."""

from __future__ import annotations

import json
from typing import Any

from jsonschema import Draft202012Validator, FormatChecker
from referencing import Registry, Resource

from trainflow.cli.schema_names import SchemaOf
from trainflow.cli.schemas import build_schema


def strict(schema: Any) -> Any:
    """A schema that takes no other fields than those that it names: what it does not name is not documented."""
    if isinstance(schema, list):
        return [strict(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: strict(inner) for name, inner in schema.items()}
    return (
        {"additionalProperties": False, **found} if found.get("type") == "object" and "properties" in found else found
    )


OUTPUT = build_schema(SchemaOf.COMMAND_OUTPUT)
COMMANDS = frozenset(OUTPUT["$defs"]) - {"number", "pod", "error", "unread"}
"""Commands with `--json`."""

_REGISTRY: Registry[Any] = Registry().with_resources(
    (schema["$id"], Resource.from_contents(strict(schema))) for schema in (OUTPUT, build_schema(SchemaOf.RUN_RECORD))
)


def require_documented(command: str, document: Any) -> None:
    """Raises `AssertionError` with every difference between a document and the schema of the command's output."""
    validator = Draft202012Validator(
        {"$ref": f"{OUTPUT['$id']}#/$defs/{command}"}, registry=_REGISTRY, format_checker=FormatChecker()
    )
    found = [f"{error.json_path}: {error.message[:300]}" for error in validator.iter_errors(document)]
    assert not found, f"`trainflow {command} --json` is not as documented: {json.dumps(found, indent=2)}"
