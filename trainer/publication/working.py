"""The files of the working folders of a run's nodes that are published: the program's own, up to a limit.

They are published as one folder: a file that only one node has keeps its path, whatever node that is, such as the
shards of one checkpoint. Of files with the same path and content one is published; another content of a later node is
published below a folder of that node.
"""

from __future__ import annotations

import filecmp
import os
from collections.abc import Collection, Iterator
from dataclasses import replace
from itertools import accumulate
from pathlib import Path

from trainer import working_folders
from trainer.lost_files import is_ignored
from trainer.publication.unpublished import Unpublishable, UnpublishedFiles
from trainer.publication.walking import FoundFile, files_below
from trainer.working_folders import NAME


def within_limit(
    run_dir: Path, max_bytes: int, *, left_out: Collection[Path], skipped: UnpublishedFiles
) -> tuple[list[FoundFile], list[FoundFile]]:
    """The files to publish, the small ones first, and those beyond the limit, the largest first.

    Args:
        run_dir: The run's folder.
        max_bytes: Most bytes of all files.
        left_out: Places whose files are passed over.
        skipped: Files that cannot be published are added to it.
    """
    files = sorted(_merged(run_dir, left_out, skipped), key=lambda file: (file.size, file.name))
    sizes = accumulate(file.size for file in files)
    num_kept = sum(size <= max_bytes for size in sizes)
    return files[:num_kept], files[num_kept:][::-1]


def _merged(run_dir: Path, left_out: Collection[Path], skipped: UnpublishedFiles) -> Iterator[FoundFile]:
    """The files of all nodes with their published names."""
    first: dict[str, FoundFile] = {}
    for node in working_folders.known_nodes(run_dir):
        for file in _program_files(run_dir, node, left_out, skipped):
            same_name = first.setdefault(file.name, file)
            if same_name is file:
                yield replace(file, name=f"{NAME}/{file.name}")
            elif not _is_same(file, same_name):
                yield replace(file, name=f"{_published_folder(node)}/{file.name}")


def _program_files(
    run_dir: Path, node: int, left_out: Collection[Path], skipped: UnpublishedFiles
) -> Iterator[FoundFile]:
    """The program's own files of a node; neither those that it was given nor links to them."""
    folder = working_folders.node_folder(run_dir, node)
    given = working_folders.given_files(run_dir, node) or {}
    resolved = os.path.realpath(folder)

    def skip(file: Unpublishable) -> None:
        skipped.add(replace(file, name=f"{_published_folder(node)}/{file.name}"))

    for file in files_below(folder, folder, skip=skip, left_out=left_out, ignored=is_ignored):
        known = given.get(file.name) or given.get(os.path.relpath(file.path, resolved))
        if known is None or known != _state(file):
            yield file


def _published_folder(node: int) -> str:
    """Folder for files of a node that have the name of a file of an earlier node."""
    return f"{NAME}-{node}" if node else NAME


def _state(file: FoundFile) -> tuple[int, int] | None:
    try:
        return working_folders.file_state(os.stat(file.path))  # noqa: PTH116  (a string, as the walk gives it)
    except OSError:
        return None


def _is_same(file: FoundFile, other: FoundFile) -> bool:
    try:
        return file.size == other.size and filecmp.cmp(file.path, other.path, shallow=False)
    except OSError:
        return False
