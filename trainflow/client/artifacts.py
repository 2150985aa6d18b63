"""Published artifacts of a run."""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from trainflow.errors import TrainflowError

NO_PATH = (errno.EEXIST, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG)
"""Errors of a path that cannot be made: another file is in its way, or a part of it is too long."""


class ArtifactRefused(TrainflowError):
    """An artifact that is not copied, because its name leads out of the folder for the copies."""

    what_to_do = "Read the program that has published the artifact; every pod of a run may choose the names."
    input_at_fault = True


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """A file of a run."""

    name: str
    """Path below the run's folder, as a program of the run has chosen it; `path_below` makes a path of it."""
    key: str
    """Key in the artifact bucket."""
    size: int
    """Bytes."""
    modified_at: datetime


def artifacts_below(s3: Any, bucket: str, prefix: str) -> list[Artifact]:
    """The objects with this prefix, in the order of their names."""
    pages = s3.get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
    return [
        Artifact(
            name=found["Key"].removeprefix(prefix),
            key=found["Key"],
            size=found["Size"],
            modified_at=found["LastModified"],
        )
        for page in pages
        for found in page.get("Contents", ())
    ]


def first_bytes(s3: Any, bucket: str, key: str, *, limit: int) -> bytes:
    """The first bytes of an object; the rest may be very long, since any program of a run may have written it."""
    found = s3.get_object(Bucket=bucket, Key=key)
    with closing(found["Body"]) as body:
        content: bytes = body.read(None if found["ContentLength"] <= limit else limit)
    return content


def is_plain(name: str) -> bool:
    """Whether a name is a relative path without steps to other folders, which a key in S3 need not be."""
    return name.isprintable() and all(part not in ("", ".", "..") for part in name.split("/"))


def path_below(folder: Path, artifact: Artifact) -> Path:
    """The path of an artifact's copy in a folder.

    Args:
        folder: Folder for the copies; it may be a symbolic link itself.
        artifact: The artifact.

    Raises:
        ArtifactRefused: If the artifact's name, or a symbolic link below the folder, leads to another place.
    """
    if not is_plain(artifact.name):
        raise ArtifactRefused(
            f"The artifact {artifact.name!r} is not copied: its name is not the path of a file below {folder}."
        )
    path = folder
    for part in artifact.name.split("/"):
        path /= part
        if path.is_symlink():
            raise ArtifactRefused(f"The artifact {artifact.name!r} is not copied: {path} is a symbolic link.")
    return path


def copy_below(folder: Path, artifact: Artifact, fetch: Callable[[Artifact, Path], None]) -> Path:
    """Copy an artifact to a folder; the path of the copy.

    Args:
        folder: Folder for the copies.
        artifact: The artifact.
        fetch: Writes it to a file, such as `RunReader.fetch`.

    Raises:
        ArtifactRefused: See `path_below`. Also if the file system takes no such path: S3 has names of any length, and
            `a` and `a/b` beside each other.
    """
    try:
        path = path_below(folder, artifact)
        fetch(artifact, path)
    except OSError as error:
        if error.errno not in NO_PATH:
            raise
        raise ArtifactRefused(
            f"The artifact {artifact.name!r} is not copied: {folder / artifact.name} cannot be made ({error.strerror})."
        ) from None
    return path
