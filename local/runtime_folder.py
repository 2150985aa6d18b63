"""Folders that end with the twin, and paths that every program in a pod understands.

The caller's TMPDIR may be long, and the folder of a checkout may be called "My Projects". Neither works for everything:
the path of a Unix socket has at most 103 bytes on macOS and 107 on Linux (`sun_path` in sys/un.h), and TorchInductor
puts paths into the compiler's command line without quotes (`torch/_inductor/cpp_builder.py`, 2.13).
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from trainflow.client.owned_folder import OwnedFolder

LONGEST_BASE = 22
"""Length in characters. Up to 81 characters may follow before a socket:
`/trainflow-12345678/pods/volumes/123456789012/tmp` for a pod's
/tmp and `/pymp-12345678/listener-12345678` for Python's multiprocessing in it."""

SHORT_BASE = "/tmp"  # noqa: S108  (every Unix has it; the folder below it has a random name and belongs to its owner)

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=,./-]+")
"""Characters that a shell does not interpret (`shlex.quote`), without the colon that separates paths in lists."""


class NoRuntimeFolder(OSError):
    """No folder on this machine has a path that is short and plain enough; the message says what to set."""


def create(prefix: str) -> OwnedFolder:
    """A temporary folder with a short path of plain characters: below TMPDIR if that has one, otherwise below /tmp.

    Folders that killed twins have left beside it are removed.

    Raises:
        NoRuntimeFolder: If neither folder is writable.
    """
    base = tempfile.gettempdir()
    if len(base) > LONGEST_BASE or not is_plain(base):
        base = SHORT_BASE
    try:
        return OwnedFolder(prefix, dir=base)
    except OSError as error:
        raise NoRuntimeFolder(
            f"{base}: no folder can be made there ({error.strerror}); set TMPDIR to a folder that can be written to, "
            f"with a path of at most {LONGEST_BASE} characters and no spaces."
        ) from None


def is_plain(path: str | os.PathLike[str]) -> bool:
    """Whether a program may put the path into a command line without quotes, and into a list of paths."""
    return _PLAIN.fullmatch(os.fspath(path)) is not None


def plain_path(path: Path, *, link: Path) -> Path:
    """A path to the same folder in plain characters: its own if it has one, otherwise `link`, which is made."""
    if is_plain(path):
        return path
    link.symlink_to(path, target_is_directory=True)
    return link


def plain_python(*, link: Path) -> Path:
    """This process's interpreter by a plain path, so that `sys.prefix` and the packages below it have one as well."""
    environment, name = Path(sys.executable).parent.parent, Path(sys.executable).name
    return plain_path(environment, link=link) / "bin" / name
