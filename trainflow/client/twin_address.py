"""Where the twin of a run is while it lives: a file in the run's folder, which the twin holds locked.

The lock tells whether the twin lives, whatever became of its process number: the system releases it with the process.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

FILE_NAME = "twin.json"


@dataclass(frozen=True, kw_only=True)
class TwinAddress:
    """Endpoints of a twin. Its credentials are of no use elsewhere."""

    endpoint: str
    """URL of its AWS."""
    region: str
    access_key_id: str
    secret_access_key: str
    kubeconfig: str
    """Path of the kubeconfig of its cluster."""
    started_at: str
    """When the run was started, in ISO 8601."""
    deployment: Mapping[str, str]
    """What the twin says of itself, as a deployment does (`DeploymentAddress`)."""


class HeldAddress:
    """An address that others find while this object is open."""

    def __init__(self, folder: Path, address: TwinAddress) -> None:
        """Write the file and lock it.

        Raises:
            OSError: If the file cannot be written.
        """
        self._path = folder / FILE_NAME
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = folder / f".{FILE_NAME}.{os.getpid()}"
        # Locked before it has its name: nothing finds it unlocked while the twin lives.
        self._file: IO[str] = os.fdopen(os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w")
        fcntl.flock(self._file, fcntl.LOCK_EX)
        json.dump(asdict(address), self._file)
        self._file.flush()
        unfinished.replace(self._path)

    def close(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self._file.close()


def read_address(folder: Path) -> TwinAddress | None:
    """The address of the twin that runs the run of this folder; None if none lives."""
    path = folder / FILE_NAME
    try:
        with path.open(encoding="utf-8") as file:
            if _is_free(file):
                return None
            return TwinAddress(**json.load(file))
    except (OSError, ValueError, TypeError):
        return None


def _is_free(file: IO[Any]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True
