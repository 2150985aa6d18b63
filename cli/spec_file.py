"""Run specs as files: YAML or JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from lambdas.errors import InvalidRunSpec
from lambdas.models.run_spec import RunSpec, parse_run_spec


def read_spec(path: Path) -> RunSpec:
    """The run spec in a file.

    Raises:
        InvalidRunSpec: If the file cannot be read, is no YAML or JSON, or describes no run; the message begins with
            the file's name.
    """
    try:
        return parse_run_spec(_document(path))
    except InvalidRunSpec as error:
        raise InvalidRunSpec(f"{path}: {error}") from None


def _document(path: Path) -> Any:
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InvalidRunSpec("is not a text file; give a run spec in YAML or JSON.") from None
    except OSError as error:
        raise InvalidRunSpec(f"cannot be read ({error.strerror}); give the path of a run spec.") from None
    try:
        return yaml.safe_load(text)  # JSON is YAML
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InvalidRunSpec(f"is neither YAML nor JSON{where}; correct it there.") from None
