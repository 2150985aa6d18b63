"""Working folders of a run's nodes, below the run's folder.

A program's working folder holds a copy of the run's code, and whatever the program writes there. Each node has one of
its own, because nodes that share a folder disturb each other: several write files of the same name, or download the
same data. A list beside each names the files that the node was given, so that the program's own files are known: only
these are published.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainer.lost_files import is_ignored
from trainer.runtime.files import written_whole
from trainer.runtime.node import SHARED_NOTES
from trainflow.protocol.placeholders import WORKING_FOLDER

NAME = WORKING_FOLDER

GivenFiles = Mapping[str, tuple[int, int]]
"""Size, and time of the last change in seconds, of each file that a node was given, by its path: the code's, and copies
of another node's files."""


def node_folder(run_dir: Path, node: int) -> Path:
    """Working folder of a node. Those of other nodes than the first are not published as they are."""
    return run_dir / NAME if node == 0 else run_dir / SHARED_NOTES / NAME / str(node)


def known_nodes(run_dir: Path) -> list[int]:
    """Numbers of the nodes that have a working folder."""
    try:
        names = os.listdir(run_dir / SHARED_NOTES / "given")  # noqa: PTH208  (names only)
    except OSError:
        return []
    return sorted(int(stem) for name in names if (stem := name.removesuffix(".json")).isdecimal())


def write_given_files(run_dir: Path, node: int, files: GivenFiles) -> None:
    """Write the list of the files that a node was given."""
    with written_whole(_list_path(run_dir, node)) as file:
        file.write(json.dumps(files).encode("utf-8", errors="surrogatepass"))


def given_files(run_dir: Path, node: int) -> GivenFiles | None:
    """The files that a node was given; None for a node without a folder, or if the list cannot be read."""
    try:
        said = json.loads(_list_path(run_dir, node).read_bytes().decode("utf-8", errors="surrogatepass"))
        return {str(name): (int(size), int(changed_at)) for name, (size, changed_at) in said.items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return None


def file_state(status: os.stat_result) -> tuple[int, int]:
    """Size and time of a file, as in the list. Some file systems have times in whole seconds."""
    return status.st_size, int(status.st_mtime)


def program_files(folder: Path, given: GivenFiles) -> Iterator[tuple[str, os.stat_result]]:
    """Path and status of each regular file that the program has written, but for caches; links are not followed.

    Args:
        folder: A working folder.
        given: The files that the node was given.
    """
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not is_ignored(name, is_folder=True))
        for name in sorted(names):
            path = os.path.join(place, name)  # noqa: PTH118  (strings: there may be thousands)
            relative = os.path.relpath(path, folder)
            if is_ignored(name, is_folder=False) or os.path.islink(path):  # noqa: PTH114
                continue
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError:
                continue
            if given.get(relative) != file_state(status):
                yield relative, status


def _list_path(run_dir: Path, node: int) -> Path:
    return run_dir / SHARED_NOTES / "given" / f"{node}.json"
