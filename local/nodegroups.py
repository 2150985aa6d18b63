"""Node groups that really grow and shrink: what EKS's Auto Scaling groups do, with process nodes.

Polls the desired sizes in the twin's EKS and starts or stops `python -m kubetwin node` processes.
"""

from __future__ import annotations

import math
import os
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kubetwin.node.shape import write_shape

from local.loop import Loop
from local.node_shapes import instance_shape, instance_type_named
from local.node_times import HEARTBEAT_SECONDS

POLL_SECONDS = 0.2
"""Time between two polls of the desired sizes; a node takes longer than that to start."""

TOGETHER_SECONDS = 3.0
"""Time between two processes of a group: nodes that are wanted shortly after one another share one. Five hundred runs
that start at once would start as many otherwise."""

STOP_SECONDS = 15.0
"""Time for a node to end its pods and to leave the cluster."""


@dataclass(frozen=True, kw_only=True)
class NodeSettings:
    """Settings of every process node."""

    kubeconfig: Path
    python: Path
    """The interpreter of nodes and pods."""
    pods_dir: Path
    image_root: Path
    """Folder that stands for every image but those of `image_roots`."""
    environment: Mapping[str, str]
    """Given to every pod, as EKS's webhooks do: AWS credentials, region, endpoint."""
    log_file: Path
    """File for the messages of the nodes."""
    image_roots: Mapping[str, Path] = field(default_factory=dict)
    """Folders that stand for single images, by the image's name."""
    known_images: Sequence[str] = ()
    """The only images that exist beside those of `image_roots`; every image exists if none is given."""
    no_op_seconds: float | None = None
    """Duration of each pod, which runs no program; None for pods that run theirs."""
    is_isolated: bool = False
    """Whether containers run as their user, with their own root file system and mounts."""
    hidden: Sequence[Path] = ()
    """Folders of this machine that no container behind walls sees."""
    network: int | None = None
    """The process that keeps the network of containers behind walls; None where they have the machine's."""
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    """Time between two heartbeats of a node whose pods run programs."""


@dataclass
class _Group:
    size: int = 0
    started_at: float = -math.inf
    """Start of its newest process, by the monotonic clock."""
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)


class Nodegroups:
    """Keeps process nodes at the node groups' desired sizes."""

    def __init__(self, desired_sizes: Callable[[], Mapping[str, tuple[str, int]]], settings: NodeSettings) -> None:
        """Prepare, without starting a node.

        Args:
            desired_sizes: From node group name to (instance type, desired size), as of now.
            settings: Settings of every node.
        """
        self._desired_sizes = desired_sizes
        self._settings = settings
        self._variables = settings.pods_dir.with_name("pods.env")
        self._groups: dict[str, _Group] = defaultdict(_Group)
        self._loop = Loop(self._poll, name="nodegroups", seconds=POLL_SECONDS)

    def start(self) -> None:
        """Start the nodes that are wanted already, and follow the desired sizes from now on."""
        _write_variables(self._variables, self._settings.environment)
        self._poll()
        self._loop.start()

    def stop(self) -> None:
        """End every node, with its pods."""
        self._loop.stop()
        for group in self._groups.values():
            _end(group)

    def processes(self) -> list[int]:
        """The processes of the nodes, the ancestors of their pods' processes."""
        return [process.pid for group in list(self._groups.values()) for process in list(group.processes)]

    def _poll(self) -> None:
        for name, (instance_type, desired) in self._desired_sizes().items():
            group = self._groups[name]
            now = time.monotonic()
            if desired > group.size and now - group.started_at >= TOGETHER_SECONDS:
                group.started_at = now
                group.processes.append(self._start_nodes(name, instance_type, range(group.size, desired)))
                group.size = desired
            elif desired == 0 and group.size:
                # Nodes share processes, so a group ends as a whole; tear-down asks for nothing else.
                _end(group)

    def _start_nodes(self, nodegroup: str, instance_type: str, indices: range) -> subprocess.Popen[bytes]:
        settings = self._settings
        shape = settings.pods_dir.with_name("node-shapes") / f"{nodegroup}.json"
        write_shape(shape, instance_shape(instance_type_named(instance_type), nodegroup=nodegroup))
        names = [f"{instance_type.replace('.', '-')}-{index}" for index in indices]
        command = [
            *(str(settings.python), "-m", "kubetwin", "node", "--until-stdin-closes"),
            *("--kubeconfig", str(settings.kubeconfig), "--shape", str(shape)),
            *("--pods-dir", str(settings.pods_dir), "--image-root", str(settings.image_root)),
            *("--heartbeat-seconds", str(settings.heartbeat_seconds)),
            *(text for name, folder in settings.image_roots.items() for text in ("--image", f"{name}={folder}")),
            *(text for name in settings.known_images for text in ("--known-image", name)),
            *(text for name in names for text in ("--name", name)),
            *("--env-file", str(self._variables)),
        ]
        if settings.is_isolated:
            command += ["--walls", *(text for folder in settings.hidden for text in ("--hide", str(folder)))]
        if settings.network is not None:
            command += ["--network", str(settings.network)]
        if settings.no_op_seconds is not None:
            command += ["--no-op", str(settings.no_op_seconds), "--no-op-log", "local.no_op_logs:log_lines"]
        with settings.log_file.open("ab") as log:
            return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True)


def _write_variables(path: Path, variables: Mapping[str, str]) -> None:
    """Write variables for pods to a file that only its owner can read: some are credentials."""
    with open(path, "w", opener=lambda name, flags: os.open(name, flags, 0o600)) as file:
        file.writelines(f"{key}={value}\n" for key, value in variables.items())


def _end(group: _Group) -> None:
    for process in group.processes:
        if process.stdin:
            process.stdin.close()
    for process in group.processes:
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    group.processes.clear()
    group.size = 0
