"""Remove the locks that a killed attempt has left in the folders that outlive it.

A lock that is a file ends with the process that removes the file. A process that was killed has not removed it, and the
next attempt waits for it until the stall limit: Neuron's compile cache ("Another process must be compiling"), the
extensions of `torch.utils.cpp_extension`, `filelock.SoftFileLock` of Hugging Face's libraries where the file system
knows no `flock`, Matplotlib's fonts. Before a later attempt starts, no process of the run is left that could hold one.

The gang's first node does it, once for each job, before it joins the other nodes, which wait for it. A node that comes
late, or that an elastic gang gets in place of a lost one, meets locks of its own gang and removes none.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from trainer.runtime.files import shown
from trainer.runtime.node import SHARED_NOTES, Node, Prepared
from trainflow.protocol.plan import AbandonedLocks

NAME = re.compile(r"(?:^|[._-])(?:fs)?lock(?:\.soft)?$", re.IGNORECASE)
"""Names of lock files: `model.hlo_module.pb.lock`, `lock`, `data.lock.soft`, `fonts.json.matplotlib-lock`."""

FOLDER_NAMES = (".lock", ".locks")
"""Folders that hold only locks: huggingface_hub and modelscope name a lock after the locked thing."""

MAX_BYTES = 1024
"""Size of the largest lock: some hold a host's name and a process id. Files such as `uv.lock` are larger."""


def prepare(step: AbandonedLocks, node: Node) -> Prepared:
    """Remove the locks, if this is the first node of the job that gets here.

    A lock that cannot be removed is printed and stays: it may be one that nothing waits for.
    """
    if node.rank == 0 and _is_first(step, node):
        # A program may have results that are named like locks; those are not empty.
        largest = dict.fromkeys(step.results, 0) | dict.fromkeys(step.caches, MAX_BYTES)
        for folder, max_bytes in largest.items():
            for lock in _locks(Path(folder), max_bytes):
                _remove(lock)
    return Prepared()


def _is_first(step: AbandonedLocks, node: Node) -> bool:
    """Whether no other node of the job has been here; without a folder for the note nothing is removed."""
    run_dir = node.environment.run_dir
    if run_dir is None:
        return False
    notes = run_dir / SHARED_NOTES
    try:
        notes.mkdir(parents=True, exist_ok=True)
        (notes / f"{step.job}.locks").touch(exist_ok=False)
    except OSError:
        return False
    return True


def _locks(folder: Path, max_bytes: int) -> Iterator[Path]:
    """Lock files below a folder. Links are neither followed nor returned."""
    for parent, _, names in os.walk(folder):
        in_folder_of_locks = any(part in FOLDER_NAMES for part in Path(parent).relative_to(folder).parts)
        for name in names:
            if not (in_folder_of_locks or NAME.search(name)):
                continue
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink() and _size(path) <= max_bytes:
                yield path


def _size(path: Path) -> float:
    try:
        return path.stat().st_size
    except OSError:
        return float("inf")


def _remove(lock: Path) -> None:
    try:
        lock.unlink(missing_ok=True)
    except OSError as error:
        print(f"The lock {shown(str(lock))} of an earlier attempt cannot be removed ({error}).", flush=True)
    else:
        print(f"The lock {shown(str(lock))} of an earlier attempt was removed.", flush=True)
