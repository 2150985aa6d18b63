"""Run specs as files or on the standard input: YAML or JSON, optionally with an override merged over them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainflow.errors import InvalidRunSpec
from trainflow.spec.changes import merged
from trainflow.spec.document import MAX_BYTES, decode
from trainflow.spec.limits import require_limits_ahead
from trainflow.spec.run_spec import RunSpec, spec_from_document

STANDARD_INPUT = Path("-")
"""Name of the standard input in place of a file, for commands that can read a spec from there."""


def read_spec(path: Path, overrides: Sequence[Path] = (), *, given: bytes | None = None) -> RunSpec:
    """The run spec in a file.

    Args:
        path: The spec.
        overrides: Files of the same form that say what is different this time; each goes over those before it.
        given: Content of a spec that is in no file; `path` is then its name in messages.

    Raises:
        InvalidRunSpec: If a file cannot be read or is not YAML or JSON, or if the described run could not start now;
            the message begins with the name of the file at fault.
    """
    document = read_document(path, overrides, given=given)
    try:
        spec = spec_from_document(document)
        require_limits_ahead(spec, now=datetime.now(UTC))
    except InvalidRunSpec as error:
        raise InvalidRunSpec(f"{' with '.join(map(str, (path, *overrides)))}: {error}") from None
    return spec


def read_document(path: Path, overrides: Sequence[Path] = (), *, given: bytes | None = None) -> Any:
    """The document of a file with its overrides merged, before it is checked as a spec.

    Raises:
        InvalidRunSpec: If a file cannot be read or is not YAML or JSON; the message begins with its name.
    """
    try:
        document = _document(path) if given is None else decode(given)
    except InvalidRunSpec as error:
        raise InvalidRunSpec(f"{path}: {error}") from None
    for override in overrides:
        try:
            document = merged(document, _document(override))
        except InvalidRunSpec as error:
            raise InvalidRunSpec(f"{override}: {error}") from None
    return document


def _document(path: Path) -> Any:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise InvalidRunSpec(f"cannot be read ({error.strerror}); give the path of a run spec.") from None
    return decode(content, is_json=path.suffix == ".json")
