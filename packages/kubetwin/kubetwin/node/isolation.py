"""The walls of a container: its user, its capabilities, and the file system that it sees.

`confinement` builds them. Here is what they shall be, from the pod and the node's settings.
"""

from __future__ import annotations

import functools
import json
import os
import posixpath
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kubetwin.node import image_view
from kubetwin.node.confinement import BUILD, EMPTY, HIDDEN, JOIN, READ_ONLY, READ_WRITE, SHOWN
from kubetwin.node.environment import ContainerConfigError
from kubetwin.node.pod_network import NoNetwork, PodNetwork
from kubetwin.node.supervised import CannotStart, Streams, Supervised

_ALL_CAPABILITIES = (1 << 41) - 1
_DEFAULT_CAPABILITIES = {
    "CHOWN": 0,
    "DAC_OVERRIDE": 1,
    "FOWNER": 3,
    "FSETID": 4,
    "KILL": 5,
    "SETGID": 6,
    "SETUID": 7,
    "SETPCAP": 8,
    "NET_BIND_SERVICE": 10,
    "NET_RAW": 13,
    "SYS_CHROOT": 18,
    "MKNOD": 27,
    "AUDIT_WRITE": 29,
    "SETFCAP": 31,
}
"""Numbers of the capabilities that a container has by default (containerd, pkg/oci/spec.go; linux/capability.h)."""

_TEMPORARY, _SHARED_MEMORY = "/tmp", "/dev/shm"  # noqa: S108 (the container's own)
_SHARED_MEMORY_OPTIONS = "size=64m,mode=1777"
"""Size and mode of a container's shared memory in containerd, unless a volume is mounted there (containerd,
oci/mounts.go)."""


# docs/decisions/0072-container-isolation-in-the-twin.md has the reasons.
@dataclass(frozen=True)
class Mount:
    """Something that a container sees at a path."""

    source: str
    """Path of this machine."""
    path: str
    """Path in the container."""
    kind: str = READ_WRITE


@dataclass(frozen=True, kw_only=True)
class Isolation:
    """The walls of one run of a container."""

    user: int
    group: int
    capabilities: int
    """Bit n is capability n of linux/capability.h."""
    flags: str
    workdir: str
    network: int | None
    """The process that keeps the containers' network (`pod_network`); None where they have the machine's."""
    root: Path
    """An empty folder, where the root file system is put together."""
    mounts: tuple[Mount, ...]

    def words(self) -> list[str]:
        """The description that builds them."""
        mounts = (word for mount in self.mounts for word in (mount.kind, mount.source, mount.path))
        return [BUILD, *self._identity(), str(self.root), *mounts]

    def joined(self, pid: int) -> list[str]:
        """The description that enters them, as they stand around a running process."""
        return [JOIN, *self._identity(), str(pid)]

    def _identity(self) -> tuple[str, ...]:
        network = "" if self.network is None else str(self.network)
        return str(self.user), str(self.group), str(self.capabilities), self.flags, self.workdir, network


def isolate(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    *,
    volumes: Mapping[str, str],
    message_file: Path,
    folders: Path,
    own: Iterable[Path],
    workdir: str,
    hidden: Iterable[Path],
    image: Iterable[Path],
    network: int | None = None,
) -> Isolation:
    """Work out a container's walls, and make the folders that belong to them.

    Args:
        pod: The pod.
        container: The container's manifest.
        volumes: This machine's path of each mount path.
        message_file: This machine's path of `terminationMessagePath`.
        folders: The pod's folder, for what the walls need.
        own: Folders of this machine that are part of the container's root file system, at the same path.
        workdir: The working directory, as the container calls it.
        hidden: Files and folders of this machine that no container sees.
        image: Files and folders of this machine that stand for the container's image, beside the system's own. A
            path in one of the hidden folders is seen as well.
        network: The process that keeps the containers' network; None for the machine's network.

    Raises:
        ContainerConfigError: If the container may not run as root, and is to.
        OSError: If a folder cannot be made.
    """
    context = security_context(pod, container)
    user = int(context.get("runAsUser") or 0)
    if context.get("runAsNonRoot") and context.get("runAsUser") == 0:
        about = f"{pod['metadata']['name']}_{pod['metadata']['namespace']}({pod['metadata']['uid']})"
        raise ContainerConfigError(
            f"container's runAsUser breaks non-root policy (pod: {json.dumps(about)}, container: {container['name']})"
        )
    writable = not context.get("readOnlyRootFilesystem")
    root, temporary = folders / "root" / container["name"], folders / "tmp" / container["name"]
    for folder in (root, temporary):
        folder.mkdir(parents=True, exist_ok=True)
    beside_root = READ_WRITE if writable else READ_ONLY
    mounts = {
        _TEMPORARY: Mount(str(temporary), _TEMPORARY, beside_root),
        _SHARED_MEMORY: Mount(_SHARED_MEMORY_OPTIONS, _SHARED_MEMORY, EMPTY),
        **{str(folder): Mount(str(folder), str(folder), beside_root) for folder in own},
        **{mount.path: mount for mount in _volume_mounts(container, volumes)},
    }
    message_path = _as_seen(container.get("terminationMessagePath") or "/dev/termination-log")
    mounts[message_path] = Mount(str(message_file), message_path)
    own_image = [part for path in image for part in image_view.way(path)]
    seen = _seen([*own_image, *_links_to_mounts(container)], hidden, mounts)
    return Isolation(
        user=user,
        group=int(context.get("runAsGroup") or 0),
        capabilities=_capabilities(context),
        flags=",".join(_flags(context, writable=writable)),
        workdir=workdir,
        network=network,
        root=root,
        mounts=tuple(sorted((*seen, *mounts.values()), key=lambda mount: len(Path(mount.path).parts))),
    )


@functools.cache
def machine_can_isolate() -> bool:
    """Whether this machine lets its users have namespaces, so that containers can have walls."""
    return sys.platform == "linux" and _succeeds("import os; os.getuid() == 1000 or exit(1)", network=None)


@functools.cache
def missing_network() -> str | None:
    """The reason why containers behind walls have the machine's network; None if they can have their own."""
    try:
        with PodNetwork() as network, socket.create_server(("127.0.0.1", 0)) as server:
            address = server.getsockname()
            connects = f"import _socket; _socket.socket().connect({address!r})"
            if _succeeds(connects, network=network.pid):
                return None
            return "a process in a network of its own cannot be let out of it"
    except NoNetwork as refused:
        return str(refused)


def _succeeds(program: str, *, network: int | None) -> bool:
    """Whether a trial program succeeds behind walls."""
    with tempfile.TemporaryDirectory(prefix="kubetwin-walls-") as folder:
        message_file = Path(folder, "message")
        message_file.touch()
        walls = isolate(
            {"spec": {"securityContext": {"runAsUser": 1000, "runAsGroup": 1000}}},
            {"name": "probe", "securityContext": {"readOnlyRootFilesystem": True}},
            volumes={"/kubetwin-probe": folder},
            message_file=message_file,
            folders=Path(folder),
            own=(),
            workdir="/",
            hidden=(),
            image=image_view.program_paths(),
            network=network,
        )
        try:
            streams = Streams(output=subprocess.DEVNULL, error=subprocess.DEVNULL)
            command = [sys.executable, "-I", "-S", "-c", program]
            return Supervised(command, dict(os.environ), Path(folder), streams, walls.words()).wait() == 0
        except (CannotStart, OSError):
            return False


def security_context(pod: Mapping[str, Any], container: Mapping[str, Any]) -> dict[str, Any]:
    """A container's security context; missing fields are the pod's."""
    contexts = ((pod.get("spec") or {}).get("securityContext") or {}, container.get("securityContext") or {})
    return {name: value for context in contexts for name, value in context.items() if value is not None}


def _volume_mounts(container: Mapping[str, Any], volumes: Mapping[str, str]) -> Iterator[Mount]:
    for mount in container.get("volumeMounts") or []:
        kind = READ_ONLY if mount.get("readOnly") else READ_WRITE
        yield Mount(volumes[mount["mountPath"]], _as_seen(mount["mountPath"]), kind)


def _as_seen(path: str) -> str:
    """The path without links of this machine, so that it can be mounted at."""
    return os.path.realpath(posixpath.join("/", path))


def _links_to_mounts(container: Mapping[str, Any]) -> Iterator[str]:
    """Links of this machine on the way to mount paths, such as /var/run."""
    for mount in container.get("volumeMounts") or []:
        yield from image_view.way(posixpath.join("/", mount["mountPath"]))[:-1]


def _seen(image: Iterable[str], hidden: Iterable[Path], mounted: Iterable[str]) -> list[Mount]:
    """Paths of this machine that the container sees, besides its mounts."""
    own = [path for path in image if path != "/"]
    secrets = (*image_view.secrets_of_owner(own), *image_view.secrets_of_system())
    shown, left_out = image_view.visible(
        (*own, *image_view.system_paths()), (*secrets, *(image_view.way(path)[-1] for path in hidden)), mounted
    )
    return [Mount(path, path, kind) for kind, paths in ((HIDDEN, left_out), (SHOWN, shown)) for path in paths]


def _capabilities(context: Mapping[str, Any]) -> int:
    if context.get("privileged"):
        return _ALL_CAPABILITIES
    changes = context.get("capabilities") or {}
    dropped, added = ({name.removeprefix("CAP_") for name in changes.get(key) or []} for key in ("drop", "add"))
    kept = set() if "ALL" in dropped else set(_DEFAULT_CAPABILITIES) - dropped
    return sum(1 << number for name, number in _DEFAULT_CAPABILITIES.items() if name in kept | added)


def _flags(context: Mapping[str, Any], *, writable: bool) -> Iterator[str]:
    if writable:
        yield "writable-root"
    if context.get("allowPrivilegeEscalation") is False:
        yield "no-new-privileges"
