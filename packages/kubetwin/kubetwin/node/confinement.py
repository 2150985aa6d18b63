"""Puts a process behind the walls of its container: a user, a root file system and mounts of its own. Linux.

The supervisor's child calls it between its fork and the program. So it imports only the standard library, and as little
of that as possible. It needs no privileges where users may have namespaces: inside of a user namespace with one user,
the owner of the process is called by the container's number, and everywhere else stays who it is. Nothing of that
outlives the container.

What the process sees is the part of the machine's file system that stands for its image, read-only, with the
container's mounts at their paths. It sends signals to processes of its own container only, where the machine has
Landlock for that (Linux 6.12).
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Callable, Collection, Iterator, Sequence

_NEW_NAMESPACES = 0x10000000 | 0x00020000
"""CLONE_NEWUSER and CLONE_NEWNS, from linux/sched.h."""
_BIND, _RECURSIVE, _SLAVE, _DETACH = 0x1000, 0x4000, 0x80000, 2
"""Flags of mount(2) and umount2(2)."""
_MOUNT_SETATTR = 442
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
"""Numbers of system calls that the C library may not offer."""
_AT_FDCWD, _AT_RECURSIVE, _READ_ONLY = -100, 0x8000, 1
"""Arguments of mount_setattr(2)."""
_CREATE_RULESET, _RESTRICT_SELF, _RULESET_VERSION = 444, 446, 1
"""System calls of Landlock, and the flag that asks for its version, from linux/landlock.h."""
_SCOPES, _FIRST_WITH_SCOPES = 0b11, 6
"""LANDLOCK_SCOPE_ABSTRACT_UNIX_SOCKET and LANDLOCK_SCOPE_SIGNAL, and the version that has them."""
_SET_NO_NEW_PRIVILEGES, _DROP_FROM_BOUNDING_SET = 38, 24
"""`prctl` options."""
_LAST_CAPABILITY = 40

JOIN, BUILD = "join", "build"
"""First words of a description: the walls of a running container, or new ones."""

READ_WRITE, READ_ONLY, EMPTY = "rw", "ro", "empty"
"""Kinds of mounts; an empty one is a folder in memory."""

SHOWN, HIDDEN = "shown", "hidden"
"""Paths of the machine that a container sees, read-only, and paths below them that it does not see."""

_libc = ctypes.CDLL(None, use_errno=True)


def enter(words: Sequence[str], ask_before_connecting: Callable[[], None]) -> None:
    """Put this process behind the walls that the words describe; its working directory is the container's then.

    Args:
        words: As `Isolation.words` and `Isolation.joined` of `kubetwin.node.isolation` give them.
        ask_before_connecting: Called in a network of the containers' own; the supervisor lets its connections out.

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
        _restrict_signals()
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
        mounts: Kind, path of this machine, and path in the container; outer ones before inner ones. No part of a path
            in the container, but for the last one of a path that is shown, is a link of this machine.
        writable: Whether the process may write into its root file system, beside the machine's folders.
    """
    _mount("tmpfs", root, 0, "tmpfs", "mode=0755")
    apart = {path for kind, _source, path in mounts if kind == HIDDEN or not os.path.lexists(path)}
    hidden = {path for kind, _source, path in mounts if kind == HIDDEN}
    read_only = [path for kind, _source, path in mounts if kind == READ_ONLY]
    for kind, source, path in mounts:
        if kind == SHOWN:
            read_only += _show(path, root, hidden=hidden, apart=apart)
        elif kind != HIDDEN:
            _place(kind, source, root + path)
    _add_links_of_dev(f"{root}/dev")
    _change(f"{root}/proc", writable=True)
    for path in read_only:
        _change(root + path, writable=False)
    if not writable:
        _change(root, writable=False)
    os.chdir(root)
    _check(_libc.syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), root)
    _check(_libc.umount2(b".", _DETACH), "/")  # the old root, which lies on top of the new one


def _place(kind: str, source: str, target: str) -> None:
    if not os.path.lexists(target):
        _make_mount_point(source, target, folder=kind == EMPTY)
    if kind == EMPTY:
        _mount("tmpfs", target, 0, "tmpfs", source)
    else:
        _mount(source, target, _BIND | _RECURSIVE)


def _show(path: str, root: str, *, hidden: Collection[str], apart: Collection[str]) -> Iterator[str]:
    """Show a path of the machine, read-only. A folder that has paths apart below it, which are hidden or have to be
    made for a mount, is a folder in memory with the other entries.

    Yields:
        The folder in memory, which is to be read-only when everything is mounted.
    """
    if _has_below(path, apart) and os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
        os.makedirs(root + path, exist_ok=True)  # noqa: PTH103
        _mount("tmpfs", root + path, 0, "tmpfs", "mode=0755")
        _show_entries(path, root, hidden=hidden, apart=apart)
        yield path
    else:
        _show_whole(path, root + path)


def _show_entries(folder: str, root: str, *, hidden: Collection[str], apart: Collection[str]) -> None:
    for name in os.listdir(folder):  # noqa: PTH208
        path = os.path.join(folder, name)  # noqa: PTH118
        if path in hidden:
            continue
        if _has_below(path, apart) and os.path.isdir(path) and not os.path.islink(path):  # noqa: PTH112, PTH114
            os.mkdir(root + path)  # noqa: PTH102
            _show_entries(path, root, hidden=hidden, apart=apart)
        else:
            _show_whole(path, root + path)


def _has_below(path: str, others: Collection[str]) -> bool:
    return any(other.startswith(path + "/") for other in others)


def _show_whole(path: str, target: str) -> None:
    """Show a file, folder or link; nothing if it has gone meanwhile."""
    if os.path.lexists(target):
        return
    try:
        mode = os.lstat(path).st_mode
        if stat.S_ISLNK(mode):
            os.makedirs(os.path.dirname(target), exist_ok=True)  # noqa: PTH103, PTH120
            os.symlink(os.readlink(path), target)  # noqa: PTH115, PTH211
            return
        _make_mount_point(path, target, folder=stat.S_ISDIR(mode))
        _mount(path, target, _BIND | _RECURSIVE)
    except FileNotFoundError:
        return
    _change(target, writable=False, recursive=True)


def _add_links_of_dev(folder: str) -> None:
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        os.symlink(f"/proc/self/fd/{number}", f"{folder}/{name}")  # noqa: PTH211
    os.symlink("/proc/self/fd", f"{folder}/fd")  # noqa: PTH211


def restricts_signals() -> bool:
    """Whether this machine's kernel can keep a container's signals inside."""
    version: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _RULESET_VERSION)
    return version >= _FIRST_WITH_SCOPES


def _restrict_signals() -> None:
    """Let this process and its children send signals, and connect to abstract Unix sockets, among themselves only. The
    processes outside belong to the same user, so that nothing else keeps them apart."""
    if not restricts_signals():
        return
    rules = (ctypes.c_uint64 * 3)(0, 0, _SCOPES)
    handle = _libc.syscall(_CREATE_RULESET, ctypes.byref(rules), ctypes.c_size_t(ctypes.sizeof(rules)), 0)
    _check(min(handle, 0), "limits of its signals")
    _check(_libc.syscall(_RESTRICT_SELF, handle, 0), "limits of its signals")
    os.close(handle)


def _make_mount_point(source: str, target: str, *, folder: bool) -> None:
    if folder or os.path.isdir(source):  # noqa: PTH112
        os.makedirs(target, exist_ok=True)  # noqa: PTH103
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
