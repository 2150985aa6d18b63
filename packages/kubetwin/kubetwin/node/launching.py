"""The inputs of one run of a container, computed from its pod."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from kubetwin.node.cluster_reader import ClusterReader
from kubetwin.node.environment import ContainerConfigError, container_environment, whole_units
from kubetwin.node.expansion import expand
from kubetwin.node.image_view import program_paths
from kubetwin.node.images import ImageFault, image_fault
from kubetwin.node.isolation import Isolation, isolate, security_context
from kubetwin.node.rewriting import NameRewriter, PathRewriter
from kubetwin.node.volumes import mount_paths

_HOSTNAME_LENGTH = 63

_COMMANDS = Path(__file__).with_name("commands")
"""Stand-ins for commands that images have and this machine may not; they come last on PATH."""


@dataclass(frozen=True, kw_only=True)
class RuntimeSettings:
    """Settings that all containers of a node share."""

    pods_dir: Path
    """Holds a folder `<namespace>_<pod>_<uid>` for each pod."""
    image_root: Path | None = None
    """Stands in for every image: its content is in each container's working directory and on PYTHONPATH."""
    image_roots: Mapping[str, Path] = field(default_factory=dict)
    """Folders that stand in for single images, by the image's name, in place of `image_root`."""
    known_images: frozenset[str] | None = None
    """The only images that exist; None if every image does."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables for every container, as an admission webhook would add them; a pod's own win."""
    allocatable: Mapping[str, str] = field(default_factory=dict)
    """The node's resources."""
    is_isolated: bool = False
    """Whether containers run behind walls: with their user, their root file system and their mounts."""
    hidden: tuple[Path, ...] = ()
    """Folders that no container behind walls sees, beside those of other pods."""
    network: int | None = None
    """The process that keeps the network of containers behind walls (`pod_network`); None for the machine's."""

    def image_fault(self, container: Mapping[str, Any], *, tried: bool) -> ImageFault | None:
        """Reason why a container's image cannot be used; None if it can."""
        known = None if self.known_images is None else self.known_images | set(self.image_roots)
        image, policy = container.get("image") or "", container.get("imagePullPolicy") or "IfNotPresent"
        return image_fault(image, policy, known, tried=tried)

    def root_for(self, image: str) -> Path | None:
        """The folder that stands in for an image."""
        return self.image_roots.get(image, self.image_root)


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One run of a container, ready to be started."""

    argv: list[str]
    environment: dict[str, str]
    folder: Path
    message_file: Path
    """Host path of `terminationMessagePath`."""
    memory_limit_bytes: int | None
    rewrite: Callable[[str], str]
    """The container's paths and names in a word of a command, as its process reads them."""
    walls: Isolation | None = None
    """The walls around the process; None where it lives in the machine's own file system."""
    joined: int | None = None
    """The process whose walls are entered, where they stand already."""

    @property
    def network(self) -> int | None:
        """The process that keeps the container's network; None for the machine's network."""
        return None if self.walls is None else self.walls.network

    def beside(self, pid: int) -> Launch:
        """The launch of a further command in the container that runs as this process."""
        return replace(self, joined=pid)

    def wall_words(self) -> list[str]:
        """The description of the walls for the supervisor."""
        if self.walls is None:
            return []
        return self.walls.words() if self.joined is None else self.walls.joined(self.joined)


def pod_folder(settings: RuntimeSettings, pod: Mapping[str, Any]) -> Path:
    """The folder of a pod."""
    metadata = pod["metadata"]
    return settings.pods_dir / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"


def volume_folder(settings: RuntimeSettings, pod: Mapping[str, Any]) -> Path:
    """Folder of the volumes that are removed with the pod; short, because programs make Unix sockets in /tmp."""
    uid: str = pod["metadata"]["uid"]
    return settings.pods_dir / "volumes" / uid.replace("-", "")[:12]


def prepare_launch(
    pod: Mapping[str, Any],
    container: Mapping[str, Any],
    volumes: Mapping[str, Path],
    settings: RuntimeSettings,
    reader: ClusterReader,
) -> Launch:
    """Work out command, environment and folders of a container's next run, and make the folders.

    Raises:
        ContainerConfigError: If something that the manifest names is missing or wrong.
        VolumeError: If a mount cannot be had.
        OSError: If a folder cannot be made.
    """
    folder, image_root = pod_folder(settings, pod), settings.root_for(container.get("image") or "")
    asked = container_environment(container, pod, reader, settings.allocatable)
    message_file = _fresh_message_file(folder / "termination" / container["name"])
    # An image's own user is not known, and taken for root.
    mounts = mount_paths(container, volumes, asked, as_root=not security_context(pod, container).get("runAsUser"))
    on_host = PathRewriter(
        {**mounts, container.get("terminationMessagePath") or "/dev/termination-log": str(message_file)}
    )
    # Behind walls, the container's paths are those that its process sees.
    paths = PathRewriter({}) if settings.is_isolated else on_host
    asker = {"asker": pod["metadata"]["uid"]}
    names = NameRewriter(
        pod["metadata"]["namespace"], partial(reader.names_a_pod, **asker), partial(reader.names_one_pod, **asker)
    )
    # A value of the downward API is not an address: the pod's name stays as it is.
    downward = {entry["name"] for entry in container.get("env") or [] if "fieldRef" in (entry.get("valueFrom") or {})}

    def rewrite(word: str) -> str:
        return names.value(paths.value(word))

    command = [*(container.get("command") or []), *(container.get("args") or [])]
    if not command:
        raise ContainerConfigError("no command specified: a process node does not know the image's own")
    workdir = _working_folder(container, on_host, folder / "work" / container["name"], image_root)
    home = folder / "home"
    home.mkdir(parents=True, exist_ok=True)
    walls = None
    if settings.is_isolated:
        is_mounted = workdir != folder / "work" / container["name"]
        walls = isolate(
            pod,
            container,
            volumes=mounts,
            message_file=message_file,
            folders=folder,
            own=(home,) if is_mounted else (home, workdir),
            workdir=container["workingDir"] if is_mounted else str(workdir),
            hidden=(settings.pods_dir, *settings.hidden),
            image=(*program_paths(), _COMMANDS, *([image_root] if image_root else ())),
            network=settings.network,
        )
    return Launch(
        argv=[rewrite(expand(word, asked)) for word in command],
        environment={
            **_given_environment(pod, home, image_root),
            "TMPDIR": paths.path("/tmp"),  # noqa: S108  (the container's own, where one is mounted)
            **settings.environment,
            **{name: paths.value(value) if name in downward else rewrite(value) for name, value in asked.items()},
        },
        folder=workdir,
        message_file=message_file,
        memory_limit_bytes=_memory_limit(container),
        rewrite=rewrite,
        walls=walls,
    )


def _given_environment(pod: Mapping[str, Any], home: Path, image_root: Path | None) -> dict[str, str]:
    """Variables that an image and a container runtime would set."""
    hostname = (pod.get("spec") or {}).get("hostname") or pod["metadata"]["name"]
    programs = [str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath), str(_COMMANDS)]
    given = {
        "PATH": os.pathsep.join(programs),
        "HOME": str(home),
        "HOSTNAME": hostname[:_HOSTNAME_LENGTH],
    }
    return given | ({"PYTHONPATH": str(image_root)} if image_root else {})


def _working_folder(container: Mapping[str, Any], paths: PathRewriter, own: Path, image_root: Path | None) -> Path:
    """Working directory of the container: the mounted folder of `workingDir`, otherwise a new folder."""
    wanted = container.get("workingDir") or ""
    mounted = paths.path(wanted)
    if wanted and mounted != wanted:
        Path(mounted).mkdir(parents=True, exist_ok=True)
        return Path(mounted)
    shutil.rmtree(own, ignore_errors=True)
    own.mkdir(parents=True)
    for entry in image_root.iterdir() if image_root else ():
        (own / entry.name).symlink_to(entry)
    return own


def _fresh_message_file(file: Path) -> Path:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"")
    return file


def _memory_limit(container: Mapping[str, Any]) -> int | None:
    limit = ((container.get("resources") or {}).get("limits") or {}).get("memory")
    return None if limit is None else whole_units(limit)
