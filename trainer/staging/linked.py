"""Restores data sets in a folder that FSx for Lustre links with a bucket; nothing is downloaded.

At first, the file system holds only names and sizes of a linked bucket's objects; Lustre calls these files "released".
Reading one restores its content while the reader waits. Asking for all of them beforehand restores many at once.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from trainer.runtime.errors import DatasetInvalid, DatasetNotFound, StorageFailed
from trainer.staging.source import RemoteFile, Source

BATCH = 200
"""Paths in one command; so many paths of the longest kind that Lustre allows fit on a command line."""

SECONDS_BETWEEN_POLLS = 5.0

POLLS_BETWEEN_REQUESTS = 60
"""Polls until the restore of what is missing is requested again: a restore that failed leaves no message."""

READERS = 16
"""Files that are read at the same time; each read waits for the content of its own file."""

READ_BYTES = 1 << 20

STATE = re.compile(r"(?P<path>.*): \((?P<flags>0x[0-9a-fA-F]+)\)(?P<words>.*)")
"""State of a file in the output of `lfs hsm_state`: `/fsx/a: (0x0000000d) released exists archived, archive_id:1`."""


def linked_paths(source: Source, folder: Path) -> list[Path]:
    """Paths of a prefix's objects in the folder that is linked with the prefix.

    Raises:
        DatasetNotFound: If an object has not appeared there.
    """
    paths = [folder / file.name for file in source.files]
    for path, file in zip(paths, source.files, strict=True):
        if not path.is_file():
            raise DatasetNotFound(
                f"The object {file.url} has not appeared as {path}; check that the folder is linked with the prefix, "
                "and import its names (a data repository task)."
            )
    return paths


def restore(
    paths: Sequence[Path], *, restored: Callable[[Path], None], sleep: Callable[[float], None] = time.sleep
) -> None:
    """Restore the content of released files, and return when all of it is there.

    Without the `lfs` command in the image, the files are read: that restores their content too, a few files at a time.

    Args:
        paths: The files.
        restored: Called with each file whose content is there.
        sleep: Called with the seconds to wait between two polls.

    Raises:
        StorageFailed: If the file system refuses the request, or lost a file's content.
    """
    lfs = shutil.which("lfs")
    if lfs is None:
        _read_all(paths, restored)
        return
    waiting, polls = list(paths), 0
    while waiting:
        released = _released(lfs, waiting)
        for path in waiting:
            if path not in released:
                restored(path)
        waiting = [path for path in waiting if path in released]
        if polls % POLLS_BETWEEN_REQUESTS == 0:
            for batch in _batches(waiting):
                _run(lfs, "hsm_restore", *batch)
        if waiting:
            sleep(SECONDS_BETWEEN_POLLS)
        polls += 1


def _read_all(paths: Sequence[Path], restored: Callable[[Path], None]) -> None:
    with ThreadPoolExecutor(READERS) as pool:
        for path in pool.map(_read, paths):
            restored(path)


def _read(path: Path) -> Path:
    try:
        with path.open("rb", buffering=0) as file:
            while file.read(READ_BYTES):
                pass
    except OSError as error:
        raise StorageFailed(
            f"{path} cannot be read ({error}); check that the folder is linked with the bucket."
        ) from error
    return path


def require_sizes(paths: Sequence[Path], files: Sequence[RemoteFile]) -> None:
    """Require that every file is as large as its object.

    Raises:
        DatasetInvalid: If one is not; the message names it.
    """
    for path, file in zip(paths, files, strict=True):
        size = path.stat().st_size
        if size != file.size:
            raise DatasetInvalid(
                f"The file {path} has {size} bytes and {file.url} has {file.size}; import the object's new version, or "
                "export the file."
            )


def _released(lfs: str, paths: Sequence[Path]) -> set[Path]:
    released = set()
    for batch in _batches(paths):
        for line in _run(lfs, "hsm_state", *batch).splitlines():
            found = STATE.fullmatch(line)
            if found is not None and "lost" in found["words"].split():
                raise StorageFailed(f"Lustre lost the content of {found['path']}; upload the object again.")
            if found is not None and "released" in found["words"].split():
                released.add(Path(found["path"]))
    return released


def _batches(paths: Sequence[Path]) -> Iterator[Sequence[Path]]:
    for start in range(0, len(paths), BATCH):
        yield paths[start : start + BATCH]


def _run(*command: str | Path) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise StorageFailed(
            f"`lfs {command[1]}` ended with {done.returncode} ({done.stderr.strip()[-300:]}); check that the folder is "
            "on Lustre and linked with the bucket."
        )
    return done.stdout
