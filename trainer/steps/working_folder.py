"""Prepare the working folder of a node below the run's folder.

The code is copied there, and the program starts there. So the files that it writes outlast the pod, also one that is
killed: a restart finds them, and they are published at the end. What the last attempt left half-written is set aside.
A node other than the first gets the files that only the first node has: many programs save on rank 0 and load on every
rank (docs/decisions/0090-working-folder-below-the-run.md).
"""

from __future__ import annotations

import heapq
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from trainer import working_folders
from trainer.checkpoints import file_formats
from trainer.checkpoints.peers import TEXTS
from trainer.runtime.node import Node
from trainer.working_folders import GivenFiles
from trainflow.protocol import variables
from trainflow.protocol.plan import Code

MAX_EXAMINED = 100
"""Most files of the last attempt that are examined for their end, the newest: only those were being written."""

INCOMPLETE = ".incomplete"
"""End of the name of a file that the last attempt left half-written."""


def entered(step: Code, code: Path, node: Node) -> Path:
    """The folder for the program to start in: one below the run's folder, or that of the code if it cannot be made.

    Args:
        step: The step of the plan.
        code: Folder of the run's code.
        node: This node.
    """
    run_dir = node.environment.run_dir
    if run_dir is None:
        return code
    number = node_number(node)
    folder = working_folders.node_folder(run_dir, number)
    try:
        before = working_folders.given_files(run_dir, number)
        given = {**(before or {}), **place(code, folder)}
        for name in set_aside_half_written(folder, given) if before is not None else ():
            copy_whole(name, run_dir, folder)
        for earlier, other in _sources(run_dir, number, node, is_restart=before is not None):
            given |= copy_missing(earlier, other, folder, given, max_bytes=step.kept_gib << 30)
        working_folders.write_given_files(run_dir, number, given)
    except OSError as error:
        print(
            f"The working folder {folder} cannot be prepared ({error}); files that the program writes to {code} are "
            "deleted with the pod.",
            file=sys.stderr,
            flush=True,
        )
        return code
    return folder


def node_number(node: Node) -> int:
    """Number of this node. The ranks of an elastic gang are assigned at run time, so its pods' own numbers count."""
    pod = os.environ.get(variables.POD_NAME, "")
    found = re.search(r"-(\d+)$", pod) if node.launch.elastic else None
    return int(found[1]) if found else node.rank


def place(code: Path, folder: Path) -> GivenFiles:
    """Copy the code to a folder; files that are there stay, since the program may have changed them.

    Returns:
        The files of the code.
    """
    placed: dict[str, tuple[int, int]] = {}
    folder.mkdir(parents=True, exist_ok=True)
    for source, target, relative in _pairs(code, folder):
        if source.is_symlink():
            with suppress(FileExistsError):
                target.symlink_to(source.readlink())
            continue
        state = working_folders.file_state(source.stat())
        if not target.exists() or _was_cut_off(target, state):
            _copy(source, target)
        placed[relative] = state
    return placed


def set_aside_half_written(folder: Path, given: GivenFiles) -> list[str]:
    """Rename the files that the last attempt was writing when it was killed, so that the program does not load them.

    Texts stay: programs append to them, and an end proves nothing.

    Returns:
        Their former paths below the folder.
    """
    files, renamed = working_folders.program_files(folder, given), []
    for relative, _ in heapq.nlargest(MAX_EXAMINED, files, key=lambda file: file[1].st_mtime_ns):
        path = folder / relative
        with suppress(OSError):
            if path.suffix != INCOMPLETE and _is_half_written(path):
                path.replace(path.with_name(path.name + INCOMPLETE))
                renamed.append(relative)
                print(f"{path} is half-written; it is renamed to {path.name}{INCOMPLETE}.", flush=True)
    return renamed


def copy_whole(name: str, run_dir: Path, folder: Path) -> None:
    """Copy a file from the first node that has written it to its end, if there is one."""
    for node in working_folders.known_nodes(run_dir):
        source = working_folders.node_folder(run_dir, node) / name
        with suppress(OSError):
            if source != folder / name and file_formats.is_whole(source) and _copy_unless_half(source, folder / name):
                print(f"{source} was copied to {folder / name}.", flush=True)
                return


def copy_missing(run_dir: Path, other: int, folder: Path, given: GivenFiles, *, max_bytes: int) -> GivenFiles:
    """Copy the program's files of another node's folder that this one does not have, or has as an older copy.

    The other node's program may be running and writing them: a copy that turns out to be half-written is not kept.

    Args:
        run_dir: Folder of the run that has them.
        other: Number of the other node.
        folder: Working folder of this node.
        given: The files that this node was given before; one that its program has not changed is replaced.
        max_bytes: Most bytes that are copied, the small files first.

    Returns:
        The files that are copied.
    """
    source = working_folders.node_folder(run_dir, other)
    files = working_folders.program_files(source, working_folders.given_files(run_dir, other) or {})
    missing = (
        (status.st_size, relative)
        for relative, status in files
        if not relative.endswith(INCOMPLETE) and _may_be_replaced(folder / relative, given.get(relative))
    )
    copied: dict[str, tuple[int, int]] = {}
    num_bytes = num_left = 0
    for size, relative in sorted(missing):
        if num_bytes + size > max_bytes:
            num_left += 1
            continue
        with suppress(FileNotFoundError):
            if not _copy_unless_half(source / relative, folder / relative):
                print(f"{source / relative} is half-written; it is not copied.", flush=True)
                continue
            copied[relative] = working_folders.file_state((folder / relative).stat())
            num_bytes += size
    if copied:
        print(f"{len(copied)} files were copied from {source} to {folder}.", flush=True)
    if num_left:
        print(f"{num_left} files of {source} were not copied: they exceed {max_bytes >> 30} GiB.", flush=True)
    return copied


def _may_be_replaced(target: Path, given: tuple[int, int] | None) -> bool:
    """Whether a file is missing, or is as this node was given it."""
    try:
        return working_folders.file_state(target.stat()) == given
    except OSError:
        return True


def _sources(run_dir: Path, number: int, node: Node, *, is_restart: bool) -> Iterator[tuple[Path, int]]:
    """Runs and nodes whose files this node gets: at a restart of the first node, and in the beginning of a run that
    continues others of the same node there and of their first node."""
    if is_restart:
        if number:
            yield run_dir, 0
        return
    for earlier in node.environment.earlier_folders(run_dir):
        yield earlier, number
        if number:
            yield earlier, 0


def _pairs(code: Path, folder: Path) -> Iterator[tuple[Path, Path, str]]:
    """Each file of the code, its place in a folder, and its path; folders are made."""
    for place_, folders, names in os.walk(code):
        here = Path(place_)
        links = [name for name in folders if (here / name).is_symlink()]
        folders[:] = [name for name in folders if name not in links]
        target = folder / here.relative_to(code)
        target.mkdir(exist_ok=True)
        for name in (*names, *links):
            yield here / name, target / name, str((here / name).relative_to(code))


def _was_cut_off(target: Path, state: tuple[int, int]) -> bool:
    """Whether a copy was not written to its end: it has its time, and not its size."""
    size, changed_at = working_folders.file_state(target.stat())
    return size < state[0] and changed_at == state[1]


def _is_half_written(path: Path) -> bool:
    """Whether a file lacks the end of its format. Programs append to texts, whose end proves nothing."""
    return path.suffix not in TEXTS and file_formats.is_whole(path) is False


def _copy(source: Path, target: Path) -> None:
    """Copy a file so that no reader sees a part of it."""
    with _copied(source, target) as temporary:
        temporary.replace(target)


def _copy_unless_half(source: Path, target: Path) -> bool:
    """Copy a file that may be being written, unless the copy is half-written; whether it was copied."""
    with _copied(source, target) as temporary:
        if _is_half_written(temporary):
            return False
        temporary.replace(target)
        return True


@contextmanager
def _copied(source: Path, target: Path) -> Iterator[Path]:
    """A copy of a file beside its target, with the suffix that shows its format; it is deleted unless it is renamed."""
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=".copy-", suffix=target.suffix, dir=target.parent)
    os.close(descriptor)
    try:
        shutil.copy2(source, name)
        yield Path(name)
    finally:
        Path(name).unlink(missing_ok=True)
