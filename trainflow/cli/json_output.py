"""`--json`: one document for programs, of every command that reads (docs/commands.md has the shapes)."""

from __future__ import annotations

import json
from math import isfinite
from typing import Annotated, Any

import typer

VERSION = 1
"""Version of the documents; fields are added without a new one."""

AsJson = Annotated[bool, typer.Option("--json", help="JSON, for programs.")]


def print_json(document: Any) -> None:
    """Print a document; a number that JSON does not have is a word."""
    typer.echo(json.dumps(_with_words(document), indent=2, allow_nan=False))


def _with_words(value: Any) -> Any:
    if isinstance(value, float) and not isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {name: _with_words(inner) for name, inner in value.items()}
    return [_with_words(inner) for inner in value] if isinstance(value, list | tuple) else value
