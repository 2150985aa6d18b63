"""The part of this machine's file system that stands for a container's image.

It is a list of what is shown, and not of what is hidden: the folders that a system image has, what the Python
environment needs, and the folders that stand for images. Other files of the machine's user, such as credentials below
the home folder, are in none of these, or in a folder that is hidden.
"""

from __future__ import annotations

import functools
import os
import pwd
import stat
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

_SYSTEM = ("bin", "gnu", "lib", "lib32", "lib64", "libx32", "nix", "opt", "proc", "sbin", "sys", "usr")
"""Folders of `/` with programs and their libraries, and the views of the kernel."""

_DEVICES = {"full", "null", "pts", "random", "tty", "urandom", "zero"}
_ACCELERATORS = ("infiniband", "neuron", "nvidia")
"""Entries of /dev that a container has, and how the names of others begin: all but the machine's disks and consoles."""

_CONFIGURATION = "/etc"
_LINKED = ("hosts", "localtime", "resolv.conf", "ssl/certs")
"""Entries of /etc that programs need and that some systems keep elsewhere, behind a link."""

_VERSION_CONTROL = (".git", ".hg", ".svn")
"""Entries of folders that are not part of an image; their settings may hold credentials."""

_MOST_LINKS = 40
"""As for the kernel (`MAXSYMLINKS`); a path with more leads nowhere."""

_OF_ALL = stat.S_IROTH
_FOLDERS_OF_ALL = stat.S_IROTH | stat.S_IXOTH


def system_paths() -> Iterator[str]:
    """Paths of the machine's system that a container sees."""
    for name in _SYSTEM:
        yield from (path for path in way(f"/{name}") if os.path.lexists(path))
    for device in Path("/dev").iterdir():
        if device.name in _DEVICES or device.name.startswith(_ACCELERATORS):
            yield str(device)
    yield _CONFIGURATION
    for name in _LINKED:
        yield from (path for path in way(f"{_CONFIGURATION}/{name}") if os.path.lexists(path))


@functools.cache
def secrets_of_system() -> tuple[str, ...]:
    """Files and folders of /etc that not every user may read: the container's process is the machine's user, who may
    be root. Looked for once in a process, since it may take a third of a second."""
    found = []
    for folder, folders, files in os.walk(_CONFIGURATION):
        for names, needed in ((files, _OF_ALL), (folders, _FOLDERS_OF_ALL)):
            secret = [name for name in names if not _readable(f"{folder}/{name}", needed)]
            names[:] = [name for name in names if name not in secret]
            found += [f"{folder}/{name}" for name in secret]
    return tuple(found)


def _readable(path: str, needed: int) -> bool:
    try:
        mode = os.lstat(path).st_mode
    except OSError:
        return False
    return stat.S_ISLNK(mode) or mode & needed == needed  # what a link leads to decides for itself


def program_paths() -> tuple[Path, ...]:
    """Files and folders that programs of this Python environment need, also those installed in place."""
    paths = [sys.prefix, sys.base_prefix, str(Path(sys.executable).parent), sys.executable, *_search_path()]
    paths += (place for name, module in list(sys.modules.items()) for place in _installed_in_place(name, module))
    return tuple(Path(path) for path in dict.fromkeys(paths) if Path(path).is_absolute() and Path(path).exists())


def _search_path() -> list[str]:
    """The search path that `site` has made: without the program's folder and PYTHONPATH, which containers lack."""
    entries = sys.path[1:] if sys.path[:1] == [str(Path.cwd())] else sys.path
    added = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    return [entry for entry in entries if entry not in added]


def _installed_in_place(name: str, module: object) -> Iterator[str]:
    """Folders of packages that a finder of setuptools' editable installations knows."""
    mapping = getattr(module, "MAPPING", None) if name.startswith("__editable__") else None
    if isinstance(mapping, Mapping):
        yield from (place if Path(place).is_dir() else f"{place}.py" for place in mapping.values())


def secrets_of_owner(shown: Iterable[str]) -> Iterator[str]:
    """Entries of the home folder whose names begin with a dot, and data of version control in what is shown."""
    yield from (f"{path}/{name}" for path in shown for name in _VERSION_CONTROL if os.path.lexists(f"{path}/{name}"))
    for home in {os.path.realpath(folder) for folder in _homes()}:
        try:
            yield from (str(entry) for entry in Path(home).iterdir() if entry.name.startswith("."))
        except OSError:
            continue  # it cannot be read, by a container either


def _homes() -> Iterator[str]:
    if home := os.environ.get("HOME"):  # it may be another folder than that of the user's entry
        yield home
    try:
        yield pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return  # a user without an entry


def way(path: str | os.PathLike[str]) -> list[str]:
    """The links on the way to a path, and where it leads to. No part of these but a link's last one is a link."""
    links: list[str] = []
    done, left = Path("/"), [*Path(path).parts[1:]]
    while left:
        part = left.pop(0)
        step = done.parent if part == ".." else done / part
        if not step.is_symlink() or len(links) == _MOST_LINKS:
            done = step
            continue
        links.append(str(step))
        target = step.readlink()
        done = Path("/") if target.is_absolute() else done
        left = [*target.parts[target.is_absolute() :], *left]
    return [*links, str(done)]


# docs/decisions/0079-files-visible-in-a-container.md has the reasons.
def visible(shown: Iterable[str], hidden: Iterable[str], mounted: Iterable[str]) -> tuple[list[str], list[str]]:
    """Paths to show and to hide, so that the longest path around a file decides.

    Args:
        shown: Paths that are seen; one that is also hidden is seen.
        hidden: Paths that are not seen.
        mounted: Mount points.

    Returns:
        The paths to show that nothing shown holds already, and the paths to hide in them.
    """
    points, wanted = {*mounted}, {*shown}
    kinds = {**dict.fromkeys(points, "mounted"), **dict.fromkeys(hidden, "hidden"), **dict.fromkeys(wanted, "shown")}
    kinds |= dict.fromkeys(points, "mounted")
    around = {path: next((kinds[str(each)] for each in Path(path).parents if str(each) in kinds), "") for path in kinds}
    return (
        sorted(path for path, kind in kinds.items() if kind == "shown" and around[path] != "shown"),
        sorted(path for path, kind in kinds.items() if kind == "hidden" and around[path] == "shown"),
    )
