"""Writes files that are complete or absent: they are written under another name, forced to the disk, then renamed."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from trainer.runtime.errors import StorageFailed
from trainflow.protocol import result

MIB = 1 << 20
"""Bytes that are read at a time."""


@contextmanager
def written_whole(path: Path) -> Iterator[BinaryIO]:
    """Write a file so that no reader, and no crash, ever sees a part of it.

    Args:
        path: The path of the file; an existing file is replaced at the end, in one step.

    Yields:
        The open file. If the block raises, the old file stays and no other file is left.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_folder(path.parent)


def file_sha256(file: Path) -> str:
    """SHA-256 of a file; helpers run with Python 3.10, whose hashlib reads no files."""
    hashing = hashlib.sha256()
    with file.open("rb") as content:
        while piece := content.read(MIB):
            hashing.update(piece)
    return hashing.hexdigest()


def shown(name: str) -> str:
    """A text with names of files as it can be printed: they may have bytes that are not UTF-8."""
    return os.fsencode(name).decode(errors="backslashreplace")


def leave_result(document: Mapping[str, Any], result_file: Path | None) -> None:
    """Leave a program's result in the pod's result file; nowhere, outside a pod.

    The file is written in place: the kubelet mounts this one file, so it cannot be renamed over.
    """
    if result_file is not None:
        result_file.write_bytes(result.to_bytes(document))


def require_writable(folder: Path, *, option: str) -> None:
    """Check that a folder can be written, before hours of work depend on it.

    Raises:
        StorageFailed: If the folder cannot be made or written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise StorageFailed(f"--{option} {folder} cannot be written ({error}); give another folder.") from error


def sync_folder(folder: Path) -> None:
    """Force a folder's entries to disk: a rename is only as durable as the folder that records it."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
