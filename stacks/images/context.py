"""Sources of the trainer's images: the packages that run in pods, and nothing else of the repository.

The context has the layout of the repository, so that it is a folder for PYTHONPATH as it stands.
"""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]

PARTS = ("trainer", "trainflow/__init__.py", "trainflow/protocol")
"""Folders and files of the repository: the programs, and the messages between them and the workflow."""


def stage(folder: Path, repository: Path = REPOSITORY) -> None:
    """Copy the context into a folder."""
    for name in _names(repository):
        copy = folder / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(repository / name, copy)


def digest(repository: Path = REPOSITORY) -> str:
    """SHA-256 over names and contents of the context's files."""
    total = hashlib.sha256()
    for path in _names(repository):
        name, content = path.as_posix().encode(), (repository / path).read_bytes()
        total.update(b"%d %d " % (len(name), len(content)) + name + content)
    return total.hexdigest()


def _names(repository: Path) -> list[Path]:
    return sorted(path.relative_to(repository) for part in PARTS for path in _files(repository / part))


def _files(part: Path) -> Iterator[Path]:
    """A file, or the files of a folder but for what Python leaves there: the same sources make the same image."""
    for path in (part,) if part.is_file() else part.rglob("*"):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".pyc":
            yield path
