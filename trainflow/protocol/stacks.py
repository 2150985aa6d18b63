"""Stacks of a node's ranks that have stood still, in one line of JSON that the supervisor prints into the pod's log.

    {"trainflow_stacks": {"node": 0, "processes": 2, "seconds": 63.1, "groups": [{"ranks": [1], "state": "S", …}]}}

Ranks with equal stacks are one group. A line without groups takes back the one before it: the ranks go on.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

STACKS = "trainflow_stacks"
"""Key of the JSON object in the line."""

MAX_BYTES = 12_000
"""Longest line: container runtimes split lines of more than 16 KiB (containerd, `max_container_log_line_size`)."""

MAX_TEXT = 160
"""Characters of a source line that are kept."""

COLLECTIVE_FILES = (
    "torch/distributed/",
    "torch/nn/parallel/",
    "deepspeed/comm/",
    "horovod/",
    "torch_xla/core/xla_model.py",
)
"""Paths of libraries whose calls wait for other ranks, below the folder of packages."""

_BEGIN = f'{{"{STACKS}":'


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A call on a stack."""

    file: str
    """Path; relative to the working folder below it, and from the package's folder on for libraries."""
    line: int
    function: str
    text: str = ""
    """The source line; empty where it could not be read."""


@dataclass(frozen=True, kw_only=True)
class Group:
    """Ranks of one node that stand at the same place."""

    ranks: tuple[int, ...]
    state: str = "S"
    """State of the process: S sleeps, R runs, D waits for a device or for storage, T is stopped (proc(5))."""
    kernel: str = ""
    """Function of the kernel in that the main thread waits; empty where the kernel hides it."""
    path: str = ""
    """Path of the file that the main thread reads or writes; empty if it does neither."""
    dead_children: int = 0
    """Processes that a rank has started, that have ended, and that it has not waited for."""
    threads: tuple[tuple[Frame, ...], ...] = ()
    """Stacks, the innermost call first, the main thread's first; empty if the process did not answer."""


@dataclass(frozen=True, kw_only=True)
class NodeStacks:
    """The ranks of one node."""

    node: int
    processes: int
    """Ranks that the node has started."""
    seconds: float
    """Nothing moved for this time."""
    groups: tuple[Group, ...] = ()


def stacks_line(stacks: NodeStacks) -> str:
    """The line. One that is too long loses the outer calls, and threads beside the main ones."""
    for frames, threads in ((16, 5), (8, 3), (4, 2), (2, 1), (1, 1)):
        groups = tuple(_shortened(group, frames=frames, threads=threads) for group in stacks.groups)
        line = _line(replace(stacks, groups=groups))
        if len(line.encode()) <= MAX_BYTES:
            return line
    return _line(replace(stacks, groups=tuple(replace(group, threads=()) for group in stacks.groups[:20])))


def is_stacks_line(text: str) -> bool:
    """Whether a line of a log is one of these."""
    return _BEGIN in text


def parse_stacks_line(text: str) -> NodeStacks | None:
    """The stacks of a line; None for other lines, and for one that is damaged."""
    _, found, rest = text.partition(_BEGIN)
    if not found:
        return None
    try:
        document, _ = json.JSONDecoder().raw_decode(rest.lstrip())
        return _node(document)
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def newest_stacks(lines: Sequence[str]) -> NodeStacks | None:
    """The stacks of a node's newest such line; None without one, and if the ranks go on."""
    found = next((each for line in reversed(lines) if (each := parse_stacks_line(line)) is not None), None)
    return found if found is not None and found.groups else None


def _shortened(group: Group, *, frames: int, threads: int) -> Group:
    return replace(group, threads=tuple(thread[:frames] for thread in group.threads[:threads]))


def _line(stacks: NodeStacks) -> str:
    document = asdict(stacks)
    for group in document["groups"]:
        group["threads"] = [[list(frame.values()) for frame in thread] for thread in group["threads"]]
    return json.dumps({STACKS: document})


def _node(document: Mapping[str, Any]) -> NodeStacks:
    return NodeStacks(
        node=int(document["node"]),
        processes=int(document["processes"]),
        seconds=float(document["seconds"]),
        groups=tuple(_group(group) for group in document["groups"]),
    )


def _group(document: Mapping[str, Any]) -> Group:
    return Group(
        ranks=tuple(int(rank) for rank in document["ranks"]),
        state=str(document["state"]),
        kernel=str(document["kernel"]),
        path=str(document["path"]),
        dead_children=int(document["dead_children"]),
        threads=tuple(tuple(_frame(*frame) for frame in thread) for thread in document["threads"]),
    )


def _frame(file: object, line: Any, function: object, text: object) -> Frame:
    return Frame(file=str(file), line=int(line), function=str(function), text=str(text))
