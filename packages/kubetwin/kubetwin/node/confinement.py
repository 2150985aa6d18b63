"""Puts a process behind the walls of its container: a user, a root file system and mounts of its own. Linux.

The supervisor's child calls it between its fork and the program. So it knows the standard library alone, and as little
of that as possible. It needs no privileges where users may have namespaces: inside of a user namespace with one user,
the owner of the process is called by the container's number, and everywhere else stays who it is. Nothing of that
outlives the container.

What the process sees is the machine's own file system, read-only, with the container's mounts at their paths.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Iterator, Sequence

_NEW_NAMESPACES = 0x10000000 | 0x00020000
"""CLONE_NEWUSER and CLONE_NEWNS, from linux/sched.h."""
_BIND, _RECURSIVE, _SLAVE, _DETACH = 0x1000, 0x4000, 0x80000, 2
"""Flags of mount(2) and umount2(2)."""
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
"""Numbers of system calls that the C library may not offer."""
_AT_FDCWD, _AT_RECURSIVE, _READ_ONLY = -100, 0x8000, 1
"""Arguments of mount_setattr(2)."""
_SET_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDING_SET = 38, 24
"""`prctl` options."""
_LAST_CAPABILITY = 40

JOIN, BUILD = "join", "build"
"""First words of a description: the walls of a running container, or new ones."""

_DEVICES = {"full", "null", "pts", "random", "tty", "urandom", "zero"}
_ACCELERATORS = ("infiniband", "neuron", "nvidia")
"""Entries of /dev that a container has, and how the names of others begin: all but the machine's disks and consoles."""

READ_WRITE, READ_ONLY, EMPTY = "rw", "ro", "empty"
"""Kinds of mounts; an empty one is a folder in memory."""

_libc = ctypes.CDLL(None, use_errno=True)


def enter(words: Sequence[str], ask_before_connecting: Callable[[], None]) -> None:
    """Put this process behind the walls that the words describe; its working directory is the container's then.

    Args:
        words: As `Walls.words` and `Walls.joined` of `kubetwin.node.walls` give them.
        ask_before_connecting: Called in a network of the containers' own, out of which the supervisor lets connections.

    Raises:
        OSError: If the machine refuses; its filename says what was tried.
    """
    kind, user, group, capabilities, flags, workdir, network, root, *mounts = words
    if network:
        join(int(network), ("user", "net"))
    if kind == JOIN:
        join(int(root), ("user", "mnt"))
    else:
        _take_namespaces(user, group)
        _build(root, list(zip(*[iter(mounts)] * 3, strict=True)), writable="writable-root" in flags)
    if network:
        ask_before_connecting()
    for number in range(_LAST_CAPABILITY + 1):
        if not int(capabilities) >> number & 1:
            _libc.prctl(_DROP_FROM_BOUNDING_SET, number, 0, 0, 0)
    if "no-new-privileges" in flags:
        _libc.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    os.chdir(workdir)


def join(pid: int, kinds: Sequence[str]) -> None:
    """Enter namespaces of a process; with that of its mounts comes its root file system.

    Raises:
        OSError: If the process has ended, or is another user's.
    """
    handles = [os.open(f"/proc/{pid}/ns/{kind}", os.O_RDONLY) for kind in kinds]
    for handle in handles:
        _check(_libc.setns(handle, 0), "namespaces of a process")
        os.close(handle)


def _take_namespaces(user: str, group: str) -> None:
    owner, owners_group = os.geteuid(), os.getegid()
    _check(_libc.unshare(_NEW_NAMESPACES), "namespaces of its own")
    for file, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{user} {owner} 1"),
        ("gid_map", f"{group} {owners_group} 1"),
    ):
        with open(f"/proc/self/{file}", "w") as target:  # noqa: PTH123 (pathlib is slow to load)
            target.write(text)
    _mount("none", "/", _RECURSIVE | _SLAVE)


def _build(root: str, mounts: Sequence[tuple[str, str, str]], *, writable: bool) -> None:
    """Make a root file system at a folder, and make it this process's own.

    Args:
        root: An empty folder.
        mounts: Kind, path of this machine, and path in the container; outer ones before inner ones.
        writable: Whether the process may write into its root file system, beside the machine's folders.
    """
    _mount("tmpfs", root, 0, "tmpfs", "mode=0755")
    _show("/", root, [path for _kind, _source, path in mounts])
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")  # noqa: PTH211
    os.symlink("/proc/self/fd", f"{root}/dev/fd")  # noqa: PTH211
    _change(f"{root}/proc", writable=True)
    for kind, source, path in mounts:
        target = root + path
        if not os.path.lexists(target):
            _make_mount_point(source, target, folder=kind == EMPTY)
        if kind == EMPTY:
            _mount("tmpfs", target, 0, "tmpfs", source)
        else:
            _mount(source, target, _BIND | _RECURSIVE)
    for kind, _source, path in mounts:
        if kind == READ_ONLY:
            _change(root + path, writable=False)
    if not writable:
        _change(root, writable=False)
    os.chdir(root)
    _check(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), root)
    _check(_libc.umount2(b".", _DETACH), "/")  # the old root, which lies on top of the new one


def _show(folder: str, target: str, points: Sequence[str]) -> None:
    """Show the entries of a machine's folder, read-only. Where something below is to be mounted at a path that does
    not exist, the folder is made anew, so that there is room for it."""
    for name in os.listdir(folder):  # noqa: PTH208
        if folder == "/dev" and name not in _DEVICES and not name.startswith(_ACCELERATORS):
            continue
        path, shown = os.path.join(folder, name), os.path.join(target, name)  # noqa: PTH118
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            continue  # it has gone meanwhile
        if stat.S_ISLNK(mode):
            os.symlink(os.readlink(path), shown)  # noqa: PTH115, PTH211
            continue
        _make_mount_point(path, shown, folder=stat.S_ISDIR(mode))
        if path in points:
            continue
        if any(point.startswith(path + "/") for point in _outermost(points) if not os.path.lexists(point)):
            _show(path, shown, points)
        else:
            _mount(path, shown, _BIND | _RECURSIVE)
            _change(shown, writable=False, recursive=True)


def _outermost(points: Sequence[str]) -> Iterator[str]:
    """The paths that lie in no other of them."""
    return (point for point in points if not any(point.startswith(other + "/") for other in points))


def _make_mount_point(source: str, target: str, *, folder: bool) -> None:
    if folder or os.path.isdir(source):  # noqa: PTH112
        os.makedirs(target)  # noqa: PTH103
        return
    os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY, 0o644))


def _mount(source: str, target: str, flags: int, kind: str = "", options: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode() or None, flags, options.encode() or None)
    _check(_libc.mount(*(ctypes.c_ulong(each) if isinstance(each, int) else each for each in arguments)), target)


def _change(target: str, *, writable: bool, recursive: bool = False) -> None:
    attributes = (ctypes.c_uint64 * 4)(0 if writable else _READ_ONLY, _READ_ONLY if writable else 0, 0, 0)
    flags = _AT_RECURSIVE if recursive else 0
    size = ctypes.sizeof(attributes)
    _check(
        _libc.syscall(_MOUNT_SETATTR, _AT_FDCWD, target.encode(), flags, ctypes.byref(attributes), size),
        target,
    )


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), what)
