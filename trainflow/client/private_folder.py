"""Folders that only their owner may read: they hold specs with their environment, packed code, logs, artifacts."""

from __future__ import annotations

from pathlib import Path


def make_private(folder: Path) -> None:
    """Make a folder, and those above it that are missing, with the mode 0700; one that exists keeps its mode.

    Raises:
        OSError: If it cannot be made.
    """
    for each in reversed((folder, *folder.parents)):
        if not each.is_dir():
            each.mkdir(mode=0o700, exist_ok=True)
