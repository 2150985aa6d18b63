"""Temporary folders whose owner is known to live or to be gone.

A process that is killed removes nothing. Its folder holds a file that the process has locked: the system releases the
lock with the process, whatever becomes of its number. The next process that makes such a folder removes those whose
lock is free.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import socket
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

OWNER = ".owner"
"""File in the folder that its owner has locked; it names the machine."""

PREFIX = "trainflow-"


class OwnedFolder(tempfile.TemporaryDirectory[str]):
    """A temporary folder of this process. Removed by `cleanup`, at the end of the block, or after this process."""

    def __init__(self, prefix: str = PREFIX, dir: str | None = None) -> None:
        """Make the folder, and remove those beside it whose owners are gone.

        Args:
            prefix: Beginning of its name.
            dir: Folder to make it in. Default: that of `tempfile`.

        Raises:
            OSError: If it cannot be made.
        """
        remove_abandoned(Path(dir or tempfile.gettempdir()))
        super().__init__(prefix=prefix, dir=dir)
        self._owner: int | None = None
        with suppress(OSError):  # a file system without locks: nobody removes the folder then
            self._owner = _locked(Path(self.name))

    def cleanup(self) -> None:
        """Remove the folder."""
        super().cleanup()
        if self._owner is not None:
            os.close(self._owner)
            self._owner = None


def _locked(folder: Path) -> int:
    """The owner's file, which is locked before it has its name: nothing finds it unlocked."""
    unfinished = folder / f"{OWNER}.new"
    descriptor = os.open(unfinished, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.write(descriptor, socket.gethostname().encode())
        unfinished.replace(folder / OWNER)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def remove_abandoned(base: Path) -> None:
    """Remove this user's folders whose owners were processes of this machine and are gone."""
    with suppress(OSError):
        for folder in base.glob(f"{PREFIX}*"):
            with suppress(OSError):
                if _is_ours(folder):
                    _remove_if_abandoned(folder)


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder that this user made and that nobody else can change."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o022


def _remove_if_abandoned(folder: Path) -> None:
    descriptor = os.open(folder / OWNER, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)  # refused while the owner lives, or is being cleaned up
        # A file system that several machines share may lock for each of them by itself.
        if os.read(descriptor, 1024) == socket.gethostname().encode():
            _remove(folder)
    finally:
        os.close(descriptor)


def _remove(folder: Path) -> None:
    """Remove the owner's file last, so that a folder that something still writes to is found again."""
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path.name != OWNER:
            path.unlink(missing_ok=True)
    if [path.name for path in folder.iterdir()] == [OWNER]:
        shutil.rmtree(folder, ignore_errors=True)
