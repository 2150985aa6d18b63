"""JSON Schemas of the files that people write and of the documents that the command prints for programs. Editors
complete and check files by them. `make schema` writes those of files into `config/`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any

from trainflow.cli.schema_names import SchemaOf

DIALECT = "https://json-schema.org/draft/2020-12/schema"

NULL = {"type": "null"}


def build_schema(what: SchemaOf) -> dict[str, Any]:
    """The schema, with its `$id`."""
    return _WRITTEN[what]()


def schema_text(what: SchemaOf = SchemaOf.RUN_SPEC) -> str:
    """The content of its file."""
    return json.dumps(build_schema(what), indent=2) + "\n"


def override_schema(of_spec: Mapping[str, Any]) -> dict[str, Any]:
    """Schema for files of `--override`, from that of specs: fields are optional, and null removes any.

    That the merged spec is valid is checked when it is merged.
    """
    # The name of the override's own fields is that of the spec's, so definitions keep theirs.
    found: dict[str, Any] = _lenient(of_spec)
    return {
        **found,
        "$id": _identifier(SchemaOf.OVERRIDE),
        "title": "Trainflow override",
        "description": "Fields that replace those of a run spec: mappings are merged, null takes a field away.",
    }


def _lenient(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_lenient(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {name: value for name, value in schema.items() if name not in ("required", "default", "minProperties")}
    for name, value in kept.items():
        if name == "$defs":
            kept[name] = {each: _lenient(inner) for each, inner in value.items()}
        elif name in ("properties", "patternProperties"):
            kept[name] = {each: _or_null(_lenient(inner)) for each, inner in value.items()}
        elif name == "additionalProperties" and isinstance(value, dict):
            kept[name] = _or_null(_lenient(value))
        elif name not in ("enum", "const", "examples"):
            kept[name] = _lenient(value)
    return kept


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {name: schema[name] for name in ("title", "description") if name in schema}
    rest = {name: value for name, value in schema.items() if name not in described}
    alternatives = rest["anyOf"] if rest.keys() == {"anyOf"} else [rest]
    return {**described, "anyOf": [*alternatives, *([] if NULL in alternatives else [NULL])]}


def _run_spec() -> dict[str, Any]:
    from trainflow.spec.run_spec import RunSpec

    return RunSpec.model_json_schema()


def _configuration() -> dict[str, Any]:
    from trainflow.configuration.deployment import Configuration

    return {**Configuration.model_json_schema(), "$schema": DIALECT, "$id": _identifier(SchemaOf.CONFIGURATION)}


def _run_record() -> dict[str, Any]:
    from trainflow.workflow.run_record import RunRecord

    schema = RunRecord.model_json_schema(mode="serialization")
    return {**schema, "$schema": DIALECT, "$id": _identifier(SchemaOf.RUN_RECORD)}


def _run_ended() -> dict[str, Any]:
    from trainflow.workflow.run_ended import RunEnded

    return RunEnded.model_json_schema(mode="serialization")


def _command_output() -> dict[str, Any]:
    found: dict[str, Any] = json.loads((files("trainflow.cli") / "command_output.json").read_text(encoding="utf-8"))
    return found


def _identifier(what: SchemaOf) -> str:
    return f"urn:trainflow:{what.value}:1"


_WRITTEN: Mapping[SchemaOf, Callable[[], dict[str, Any]]] = {
    SchemaOf.RUN_SPEC: _run_spec,
    SchemaOf.OVERRIDE: lambda: override_schema(_run_spec()),
    SchemaOf.CONFIGURATION: _configuration,
    SchemaOf.RUN_RECORD: _run_record,
    SchemaOf.RUN_ENDED: _run_ended,
    SchemaOf.COMMAND_OUTPUT: _command_output,
}
