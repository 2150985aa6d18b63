"""Files of a program's folder that .gitignore keeps out of the pack: the likeliest reason of a missing file."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from trainflow.record.wording import size
from trainflow.spec.code import MOST_LEFT_OUT

LARGE = 1 << 20
"""Least size, in bytes, of a file that is named before the run, whether or not the program's source names it."""

MOST_COUNTED = 10_000
"""Most files of one folder whose sizes are added up."""

MOST_NAMED = 5
"""Most files that one sentence names."""

LONGEST_NAME = 300

BY_PRODUCTS = frozenset(
    (
        *(".git", "__pycache__", ".venv", "venv", "node_modules", ".trainflow", ".idea", ".vscode", ".DS_Store", "env"),
        *(".mypy_cache", ".pytest_cache", ".ruff_cache", ".ipynb_checkpoints", "build", "dist", "wandb", "out"),
    )
)
"""Names of files and folders that no program reads."""


@dataclass(frozen=True)
class LeftOut:
    """A file, or a folder with all that is in it, whose name ends with `/`."""

    name: str
    num_bytes: int


def files_left_out(folder: Path, *, besides: Iterable[Path] = ()) -> tuple[LeftOut, ...]:
    """Files and folders that Git ignores in a folder, the largest first; nothing where Git lists none.

    Args:
        folder: Folder of the code.
        besides: Folders that are left out for another reason, such as those of earlier runs' records.
    """
    listing = ["git", "-C", str(folder), "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory"]
    try:
        done = subprocess.run(listing, capture_output=True, check=False)
    except OSError:
        return ()
    if done.returncode:
        return ()
    others = {path.resolve() for path in besides}
    names = sorted(name.decode(errors="replace") for name in done.stdout.split(b"\0") if name)
    # Git lists a folder in front of its files if it ignores each of these, and alone if it ignores the folder.
    names = [name for name, after in zip(names, [*names[1:], ""], strict=False) if not _is_above(name, after)]
    found = [
        LeftOut(name, _size(folder / name))
        for name in names
        if _may_be_read(name) and not any((folder / name).resolve().is_relative_to(other) for other in others)
    ]
    return tuple(sorted(found, key=lambda each: (-each.num_bytes, each.name))[:MOST_LEFT_OUT])


def _is_above(name: str, other: str) -> bool:
    return name.endswith("/") and other.startswith(name)


def _may_be_read(name: str) -> bool:
    parts = name.strip("/").split("/")
    is_product = BY_PRODUCTS & set(parts) or parts[-1].endswith((".pyc", ".egg-info", ".so"))
    return not is_product and name.isprintable() and len(name) <= LONGEST_NAME


def _size(path: Path) -> int:
    try:
        if not path.is_dir():
            return path.lstat().st_size
        return sum(file.lstat().st_size for file in islice(_files(path), MOST_COUNTED))
    except OSError:
        return 0


def _files(folder: Path) -> Iterator[Path]:
    return (Path(parent, name) for parent, _, names in os.walk(folder) for name in names)


def sentence(found: Iterable[LeftOut], source: bytes) -> str | None:
    """A sentence about the files that are large, or that the program's source names; None without such files.

    Args:
        found: What is left out.
        source: Source of the program; empty if it is not here.
    """
    named = [each for each in found if each.num_bytes >= LARGE or _is_mentioned(each.name, source)]
    if not named:
        return None
    names = ", ".join(f"{each.name} ({size(each.num_bytes)})" for each in named[:MOST_NAMED])
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"not packed, because .gitignore names them: {names}{more}. Programs read data from {{data_dir}}"


def _is_mentioned(name: str, source: bytes) -> bool:
    """Whether a source has the last part of a path as a word of its own."""
    last = name.rstrip("/").rpartition("/")[2].encode()
    return any(quote + last in source or b"/" + last + quote in source for quote in (b"'", b'"'))
