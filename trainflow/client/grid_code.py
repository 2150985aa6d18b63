"""The code of the grids that were started from here: other code makes another grid, which is said with its reason."""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from trainflow.client.code import PackedCode
from trainflow.client.grid import Grid
from trainflow.client.whole_files import write_text

FILE_NAME = ".grids.json"
"""File in the folder of the runs' folders."""

MAX_GRIDS = 100
"""Newest grids that are remembered."""

MAX_NAMED = 5
"""Files that a sentence names."""


def code_difference(grid: Grid, code: PackedCode | None, *, out: Path) -> str | None:
    """The sentence about an earlier grid of the same spec and values whose code differs; None without one.

    Args:
        grid: The grid that is about to start.
        code: Its code.
        out: Folder of the runs' folders.
    """
    earlier = [each for each in _remembered(out) if each.get("content") == grid.content_id]
    if not earlier or any(each.get("grid") == grid.grid_id for each in earlier):
        return None
    newest, files = earlier[-1], _files(code)
    before = newest.get("files")
    before = before if isinstance(before, dict) else {}
    changed = sorted(name for name in {*files, *before} if files.get(name) != before.get(name))
    more = f" and {len(changed) - MAX_NAMED} more" if len(changed) > MAX_NAMED else ""
    return (
        f"The code differs from that of the grid {newest.get('grid')} by {', '.join(changed[:MAX_NAMED])}{more}, so "
        "this is another grid, and all of its runs are new. Name files that do not matter in .gitignore."
    )


def remember(grid: Grid, code: PackedCode | None, *, out: Path) -> None:
    """Remember the code of a grid that starts. Without room for it nothing is remembered, and the grid starts."""
    others = [each for each in _remembered(out) if each.get("grid") != grid.grid_id]
    entry = {"content": grid.content_id, "grid": grid.grid_id, "files": _files(code)}
    with suppress(OSError):
        write_text(out / FILE_NAME, json.dumps([*others, entry][-MAX_GRIDS:]))


def _remembered(out: Path) -> list[Mapping[str, Any]]:
    try:
        found = json.loads((out / FILE_NAME).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []


def _files(code: PackedCode | None) -> dict[str, str]:
    """Digests of the packed files by their names."""
    if code is None:
        return {}
    found = {}
    with tarfile.open(fileobj=io.BytesIO(code.content), mode="r:gz") as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isfile() else None
            content = file.read() if file is not None else member.linkname.encode()
            found[member.name] = hashlib.sha256(content + bytes([member.mode & 0o100 != 0])).hexdigest()[:16]
    return found
