"""The files below a folder, and those that a pattern matches. Folders behind links are not entered."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from trainer.runtime.node import SHARED_NOTES
from trainflow.protocol.checkpoint_pattern import CheckpointPattern, advanced, with_no_folders

MAX_ENTRIES = 200_000
"""Files and folders that are compared with a pattern."""


def below(folder: Path) -> list[Path]:
    """All files and folders below a folder, in the order of their paths.

    Raises:
        OSError: If a folder cannot be read.
    """
    found: list[Path] = []
    waiting = [folder]
    while waiting:
        with os.scandir(waiting.pop()) as entries:
            for entry in entries:
                path = Path(entry.path)
                found.append(path)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(path)
    return sorted(found)


def matching(pattern: CheckpointPattern, folder: Path) -> Iterator[tuple[Path, int | None]]:
    """The paths below a folder that a pattern matches, each with its step. Each folder is read once at most.

    Args:
        pattern: The pattern.
        folder: The folder; what cannot be read in it is passed over, and so are the nodes' own files in it: they
            contain copies of other nodes' checkpoints.
    """
    parts, left = pattern.parts, MAX_ENTRIES
    waiting: list[tuple[str, dict[int, int | None]]] = [(str(folder), {0: None})]
    while waiting:
        place, reached = waiting.pop()
        with suppress(OSError), os.scandir(place) as entries:
            for entry in entries:
                left -= 1
                if left < 0:
                    return
                if entry.name == SHARED_NOTES and place == str(folder):
                    continue
                behind = with_no_folders(parts, advanced(parts, reached, entry.name))
                if len(parts) in behind:
                    yield Path(entry.path), behind[len(parts)]
                open_ends = {at: step for at, step in behind.items() if at < len(parts)}
                # With `**`, links are not followed: they may loop.
                if open_ends and entry.is_dir(follow_symlinks=None not in parts):
                    waiting.append((entry.path, open_ends))
