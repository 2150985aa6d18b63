"""The rank that holds up a gang, by the stacks of its ranks. Pure and total: any stacks are accepted.

Ranks that wait in a collective operation wait for a rank that does not. So the rank behind is one whose main thread is
elsewhere, or one that has ended (docs/decisions/0095-evidence-of-a-hang.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from trainflow.protocol.stacks import COLLECTIVE_FILES, Frame, Group, NodeStacks

MAX_RANKS = 8
"""Ranks that a sentence names."""


class Wait(Enum):
    """The thing that a rank waits for, in the words of a sentence about it."""

    COLLECTIVE = "waits in a collective operation"
    STOPPED = "is stopped by a signal or a debugger"
    QUEUE_OF_DEAD = "waits for a worker process that has ended"
    DEADLOCK = "waits for a lock, as another of its threads does: a deadlock"
    STORAGE = "waits for a file or a device"
    LOCK = "waits for a lock or a thread"
    QUEUE = "waits for an item of a queue or a pipe"
    CHILD = "waits for a process that it has started"
    CONNECTION = "waits for a connection or an event"
    SLEEP = "sleeps"
    OTHER = "stands still"


@dataclass(frozen=True, kw_only=True)
class Standstill:
    """The rank that holds up the others, and its place."""

    wait: Wait | None
    """None if a rank has ended, or if no rank is behind."""
    ranks: tuple[int, ...]
    """The ranks behind, or those that have ended; empty if all ranks wait in collective operations."""
    place: str
    """File, line and function, with the source line if it is known."""
    sentence: str


_LIBRARY = ("site-packages/", "dist-packages/", "python3.", "<frozen")
_COLLECTIVE = re.compile(f"packages/(?:{'|'.join(map(re.escape, COLLECTIVE_FILES))})")
_BACKWARD = "_engine_run_backward"
_WAIT_TEXT = re.compile(r"\.wait\(|store\w*\.get\(", re.IGNORECASE)
"""Waiting in C for ranks, by `Work.wait` or a store. A wait of Python's own modules has a call of theirs inside."""
_WRAPPERS = ("wrapper", "inner", "__call__", "_call_impl")
_QUEUE_FILES = ("/multiprocessing/", "/queue.py", "/torch/utils/data/dataloader.py")
_LOCK_TEXT = re.compile(r"^with (?!open|.*\()|\.acquire\(")
_STORAGE_TEXT = re.compile(r"\bopen\(|\.(?:read|write|flush|stat|exists|load|save|tofile|fromfile)\w*\(|fsync\(")
_STORAGE_KERNEL = re.compile(
    r"^(?:anon_)?pipe_|fifo|wait_for_partner|nfs|^rpc_|lustre|^ll_|^cl_|ptlrpc|fuse|folio|io_schedule|^blk_|ext4|xfs|jbd2"
    r"|ceph|_page|^locks_"
)
_CONNECTION_KERNEL = re.compile(r"poll|^select|skb|^unix_|^inet_|^tcp_|^sk_|accept")
_CONNECTION_FILES = ("/socket.py", "/ssl.py", "/selectors.py")
_CHILD_FILES = ("/subprocess.py", "/multiprocessing/popen_")
_SLEEP = re.compile(r"\bsleep\(")


def standstill(nodes: Sequence[NodeStacks]) -> Standstill | None:
    """The rank that holds up the others; None without stacks.

    Args:
        nodes: The stacks of nodes of one gang, one for each node.
    """
    groups = _groups(nodes)
    if not groups:
        return None
    waiting = [group for group in groups if classified(group) is Wait.COLLECTIVE]
    behind = [group for group in groups if group not in waiting]
    left = sorted(_left(nodes))
    if left and not any(_is_certain(classified(group)) for group in behind):
        return _ended(left, waiting or behind)
    return _behind(behind, waiting) if behind else _all_wait(waiting)


def classified(group: Group) -> Wait:
    """The thing that a rank's main thread waits for."""
    stack = group.threads[0] if group.threads else ()
    if _collective(stack):
        return Wait.COLLECTIVE
    if group.state in "Tt":
        return Wait.STOPPED
    if group.state == "D":
        return Wait.STORAGE
    if group.kernel == "do_wait" or any(file in frame.file for frame in stack[:3] for file in _CHILD_FILES):
        return Wait.CHILD
    if any(file in frame.file for frame in stack[:6] for file in _QUEUE_FILES):
        return Wait.QUEUE_OF_DEAD if group.dead_children else Wait.QUEUE
    if _waits_for_lock(stack):
        return Wait.DEADLOCK if any(map(_waits_for_lock, group.threads[1:])) else Wait.LOCK
    text = stack[0].text if stack else ""
    if _SLEEP.search(text) or "nanosleep" in group.kernel:
        return Wait.SLEEP
    if group.path or _STORAGE_KERNEL.search(group.kernel) or _STORAGE_TEXT.search(text):
        return Wait.STORAGE
    is_connected = _CONNECTION_KERNEL.search(group.kernel) or (stack and stack[0].file.endswith(_CONNECTION_FILES))
    return Wait.CONNECTION if is_connected else Wait.OTHER


def innermost_place(stack: Sequence[Frame]) -> str:
    """The innermost call of the program; of a stack without one, the innermost call."""
    frame = next(filter(_is_own, stack), stack[0] if stack else None)
    if frame is None:
        return ""
    return f"{frame.file}:{frame.line} in {frame.function}" + (f": {frame.text}" if frame.text else "")


def _is_own(frame: Frame) -> bool:
    """Whether a call is in the program, and not in a library."""
    return not frame.file.startswith(_LIBRARY)


def _groups(nodes: Sequence[NodeStacks]) -> list[Group]:
    """The groups of all nodes; ranks of several nodes that stand at one place are one group."""
    merged: dict[tuple[object, ...], Group] = {}
    for group in (group for node in nodes for group in node.groups):
        key = (group.state, group.kernel, group.path, group.dead_children, group.threads)
        known = merged.get(key)
        ranks = tuple(sorted({*(known.ranks if known else ()), *group.ranks}))
        merged[key] = Group(**{**vars(group), "ranks": ranks})
    return list(merged.values())


def _left(nodes: Sequence[NodeStacks]) -> Iterator[int]:
    """Ranks that their nodes have started and that are gone."""
    for node in nodes:
        known = {rank for group in node.groups for rank in group.ranks}
        first = node.node * node.processes
        yield from (rank for rank in range(first, first + node.processes) if rank not in known)


def _collective(stack: Sequence[Frame]) -> str:
    """Name of the collective operation that a stack is in; empty if it is in none.

    DistributedDataParallel waits for the others at the end of the backward pass, inside of the autograd engine.
    """
    inner = [frame for frame in stack[:5] if _COLLECTIVE.search(frame.file)]
    named = next((frame.function for frame in inner if frame.function not in _WRAPPERS), "")
    if inner:
        return named or "a collective operation"
    if stack and _is_own(stack[0]) and _WAIT_TEXT.search(stack[0].text):
        return "a pending operation"
    return "the backward pass" if stack and stack[0].function == _BACKWARD else ""


def _waits_for_lock(stack: Sequence[Frame]) -> bool:
    if not stack:
        return False
    inner = stack[0]
    return inner.file.endswith("/threading.py") or inner.function == "acquire" or bool(_LOCK_TEXT.search(inner.text))


def _is_certain(wait: Wait) -> bool:
    return wait in (Wait.QUEUE_OF_DEAD, Wait.DEADLOCK)


def _ended(left: Sequence[int], others: Sequence[Group]) -> Standstill:
    verb = "has" if len(left) == 1 else "have"
    waits = "wait" if classified(others[0]) is Wait.COLLECTIVE else "stand still"
    place = innermost_place(_main(others[0]))
    sentence = f"{_named(left)} {verb} ended, and the others {waits}{_where(others)}."
    return Standstill(wait=None, ranks=tuple(left), place=place, sentence=sentence)


def _behind(behind: Sequence[Group], waiting: Sequence[Group]) -> Standstill:
    order = list(Wait)
    first = min(behind, key=lambda group: (order.index(classified(group)), len(group.ranks), group.ranks))
    wait, stack = classified(first), _main(first)
    place = innermost_place(stack)
    doing = wait.value if len(first.ranks) == 1 else _plural(wait.value)
    if wait is Wait.STORAGE and first.path:
        doing += f" ({first.path})"
    sentence = f"{_named(first.ranks)} {doing}" + (f" at {place}" if place else "")
    others = sum(len(group.ranks) for group in waiting)
    if others:
        sentence += f", while {'another rank waits' if others == 1 else f'{others} other ranks wait'}{_where(waiting)}"
    return Standstill(wait=wait, ranks=first.ranks, place=place, sentence=f"{sentence}.")


def _all_wait(waiting: Sequence[Group]) -> Standstill:
    """No rank is behind: the network or a device, or ranks that are in different operations."""
    place = innermost_place(_main(waiting[0]))
    places = {(_collective(_main(group)), innermost_place(_main(group))) for group in waiting}
    if len(places) == 1:
        sentence = f"Every rank waits in {_collective(_main(waiting[0]))} at {place}: no rank is behind."
    else:
        parts = (
            f"{_named(group.ranks)} in {_collective(_main(group))} at {innermost_place(_main(group))}"
            for group in waiting
        )
        sentence = f"The ranks wait in different operations: {', '.join(list(parts)[:MAX_RANKS])}."
    return Standstill(wait=Wait.COLLECTIVE, ranks=(), place=place, sentence=sentence)


def _where(groups: Sequence[Group]) -> str:
    """The operation and the place in that ranks wait."""
    if not groups:
        return ""
    largest = max(groups, key=lambda group: len(group.ranks))
    operation, place = _collective(_main(largest)), innermost_place(_main(largest))
    return (f" in {operation}" if operation else "") + (f" at {place}" if place else "")


def _main(group: Group) -> tuple[Frame, ...]:
    return group.threads[0] if group.threads else ()


def _named(ranks: Sequence[int]) -> str:
    if len(ranks) == 1:
        return f"Rank {ranks[0]}"
    shown = ", ".join(map(str, ranks[:MAX_RANKS]))
    return f"Ranks {shown}" + (f" and {len(ranks) - MAX_RANKS} more" if len(ranks) > MAX_RANKS else "")


def _plural(words: str) -> str:
    verb, _, rest = words.partition(" ")
    return f"{verb.removesuffix('s')} {rest}".strip()
