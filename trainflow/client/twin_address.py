"""The twin of a run that starts or lives: files in the run's folder, which its process holds locked.

The lock shows whether the process lives, even if its number is used again: the system releases it with the process. The
owner's access key is in a file of its own, which the twin has in its runtime folder: programs in pods may see the run's
folder, where that lies in the folder that stands for their image.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from trainflow.client.private_folder import make_private

FILE_NAME = "twin.json"
START_FILE = "started.json"
"""File with the start time of the run. It is written before all other files of the run, and stays."""

_KEY = ("access_key_id", "secret_access_key")


@dataclass(frozen=True, kw_only=True)
class TwinAddress:
    """Endpoints of a twin. Its credentials are of no use elsewhere."""

    endpoint: str
    """URL of its AWS."""
    region: str
    access_key_id: str
    secret_access_key: str
    credentials: str
    """Path of the file for the access key."""
    kubeconfig: str
    """Path of the kubeconfig of its cluster."""
    started_at: str
    """Start of the run, in ISO 8601."""
    deployment: Mapping[str, str]
    """Address of the twin's deployment, in the form of a real one (`DeploymentAddress`)."""


class HeldAddress:
    """An address that others find while this object is open."""

    def __init__(self, folder: Path, address: TwinAddress) -> None:
        """Write the file and lock it, and write the access key to the address's file for it.

        Raises:
            OSError: If a file cannot be written.
        """
        self._path = folder / FILE_NAME
        fields = asdict(address)
        with _owners_file(Path(address.credentials)) as file:
            json.dump({name: fields.pop(name) for name in _KEY}, file)
        self._file = _locked(self._path, fields)

    def close(self) -> None:
        """Remove the file."""
        self._path.unlink(missing_ok=True)
        self._file.close()


class HeldStart:
    """The mark of a run that is starting, while the block lasts. It ends when the process does, too."""

    def __init__(self, folder: Path) -> None:
        """Writes nothing yet.

        Args:
            folder: The run's folder.
        """
        self._path, self.started_at = folder / START_FILE, datetime.now(UTC)

    def __enter__(self) -> HeldStart:
        """Write the file and lock it.

        Raises:
            OSError: If the file cannot be written.
        """
        self._file = _locked(self._path, {"started_at": self.started_at.isoformat()})
        return self

    def __exit__(self, *_error: object) -> None:
        """Release the lock, also where a process that was forked meanwhile has the file open."""
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._file.close()


def is_starting(folder: Path) -> bool:
    """Whether a process of this machine is starting the run of this folder."""
    try:
        with (folder / START_FILE).open(encoding="utf-8") as file:
            return not _is_free(file)
    except OSError:
        return False


def read_start_time(folder: Path) -> datetime | None:
    """Start time of the run of this folder; None for a run of an earlier version."""
    try:
        return datetime.fromisoformat(json.loads((folder / START_FILE).read_text(encoding="utf-8"))["started_at"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _locked(path: Path, document: Mapping[str, Any]) -> IO[str]:
    """A new file with the document, which is locked before it has its name: nothing finds it unlocked."""
    make_private(path.parent)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    file = _owners_file(unfinished)
    fcntl.flock(file, fcntl.LOCK_EX)
    json.dump(document, file)
    file.flush()
    unfinished.replace(path)
    return file


def _owners_file(path: Path) -> IO[str]:
    """A new file that only its owner can read, to write to."""
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w")


def read_address(folder: Path) -> TwinAddress | None:
    """The address of the twin that runs the run of this folder; None if none lives."""
    path = folder / FILE_NAME
    try:
        with path.open(encoding="utf-8") as file:
            if _is_free(file):
                return None
            document = json.load(file)
        return TwinAddress(**document, **json.loads(Path(document["credentials"]).read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _is_free(file: IO[Any]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    fcntl.flock(file, fcntl.LOCK_UN)
    return True
