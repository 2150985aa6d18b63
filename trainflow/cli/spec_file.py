"""Run specs as files: YAML or JSON, alone or with an override merged over them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from trainflow.errors import InvalidRunSpec
from trainflow.models.run_spec import RunSpec, parse_run_spec


def read_spec(path: Path, overrides: Sequence[Path] = ()) -> RunSpec:
    """The run spec in a file.

    Args:
        path: The spec.
        overrides: Files of the same form that say what is different this time; each goes over those before it.

    Raises:
        InvalidRunSpec: If a file cannot be read or is no YAML or JSON, or if they describe no run; the message begins
            with the name of the file at fault.
    """
    try:
        document = _document(path)
    except InvalidRunSpec as error:
        raise InvalidRunSpec(f"{path}: {error}") from None
    for override in overrides:
        try:
            document = merged(document, _document(override))
        except InvalidRunSpec as error:
            raise InvalidRunSpec(f"{override}: {error}") from None
    try:
        return parse_run_spec(document)
    except InvalidRunSpec as error:
        raise InvalidRunSpec(f"{' with '.join(map(str, (path, *overrides)))}: {error}") from None


def merged(document: Any, override: Any) -> Any:
    """The document with what the override says instead, before anything is checked (RFC 7386, JSON merge patch).

    Mappings are merged field by field, everything else is replaced, and null takes a field away.

    Raises:
        InvalidRunSpec: If the override is no mapping.
    """
    if not isinstance(override, Mapping):
        raise InvalidRunSpec("must be a mapping of the fields that differ, such as 'compute' or 'limits'.")
    return _merged(document, override)


def _merged(document: Any, override: Any) -> Any:
    if not isinstance(override, Mapping):
        return override
    base = dict(document) if isinstance(document, Mapping) else {}
    for name, value in override.items():
        if value is None:
            base.pop(name, None)
        else:
            base[name] = _merged(base.get(name), value)
    return base


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
