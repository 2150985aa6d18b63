"""Start arguments of a run of the twin, in its folder: a twin that is killed does not leave a record of it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trainflow.client.whole_files import write_text

FILE_NAME = "start.json"


@dataclass(frozen=True, kw_only=True)
class LocalStart:
    """Arguments of a run's start."""

    spec: Mapping[str, Any]
    """The run spec, with the URL of packed code."""
    image_root: Path
    """Folder that stood for the image."""


def write_start(folder: Path, start: LocalStart) -> None:
    """Write the file into a run's folder.

    Raises:
        OSError: If it cannot be written.
    """
    document = {"spec": start.spec, "image_root": str(start.image_root)}
    write_text(folder / FILE_NAME, json.dumps(document, indent=2) + "\n")


def read_start(folder: Path) -> LocalStart | None:
    """Start arguments of the run of a folder; None for a run of an earlier version, which did not write them."""
    try:
        document = json.loads((folder / FILE_NAME).read_text(encoding="utf-8"))
        return LocalStart(spec=dict(document["spec"]), image_root=Path(document["image_root"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
