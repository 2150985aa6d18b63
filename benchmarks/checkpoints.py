"""Seconds to write a checkpoint and to resume from it: in a node's memory, and on a disk as shared storage.

A model of one layer and its AdamW state make 1 GiB, in one process on this machine's processor. The disk is this
machine's, and its pages leave the cache before each load: a shared file system adds a network.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.result import BenchmarkFailed, Result, this_machine

if TYPE_CHECKING:
    from torch import nn

TRIALS = 5
WIDTH = 9460
"""Width of the layer: its 89.5 million parameters take 0.33 GiB, and AdamW's two moments twice that."""

IN_MEMORY = Path("/dev/shm")  # noqa: S108  (a file system in memory, as that of a pod's emptyDir)
GOAL_SECONDS = 2.0
"""Longest load of 1 GiB from a node."""


def run() -> Result:
    """Measure both folders in turn.

    Raises:
        BenchmarkFailed: If the machine lacks a file system in memory.
    """
    if not IN_MEMORY.is_dir():
        raise BenchmarkFailed(f"{IN_MEMORY} does not exist; measure on Linux.")
    with ExitStack() as stack:
        node, shared = (
            Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trainflow-checkpoints-", dir=place)))
            for place in (IN_MEMORY, None)
        )
        return _measured(node, shared)


def _measured(node: Path, shared: Path) -> Result:
    import torch

    from trainer.checkpoints import checkpoint, checkpoint_files
    from trainer.checkpoints.checkpoint import Progress
    from trainer.checkpoints.checkpoint_files import CheckpointFile
    from trainer.checkpoints.fingerprint import Fingerprint

    torch.manual_seed(0)
    model, optimizer = _trained_once(WIDTH)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    training = Fingerprint({"width": WIDTH}, {"width": WIDTH})

    def from_node() -> CheckpointFile | None:
        (record,) = checkpoint_files.complete_ones(node).values()
        return CheckpointFile(checkpoint_files.checkpoint_path(record, node), record)

    def from_shared() -> CheckpointFile | None:
        return checkpoint.newest_fitting(shared, training, say=print)

    seconds: dict[str, list[float]] = {}
    for _ in range(TRIALS):
        for name, folder, find in (("node", node, from_node), ("shared", shared, from_shared)):
            written = _timed(
                seconds.setdefault(f"write to {name}", []),
                lambda into=folder: checkpoint.write(into, state, Progress(step=1), training),  # type: ignore[misc]
            )
            _leave_the_cache(written.path)

            def load(find: Callable[[], CheckpointFile | None] = find) -> None:
                found = find()
                if found is None:
                    raise BenchmarkFailed("The checkpoint that was written is not found.")
                checkpoint.restore(found, model, optimizer)

            _timed(seconds.setdefault(f"load from {name}", []), load)
    medians = {name: statistics.median(taken) for name, taken in seconds.items()}
    return Result(
        benchmark="checkpoints",
        ratios={"load from shared over node": round(medians["load from shared"] / medians["load from node"], 1)},
        seconds={name: round(median, 2) for name, median in medians.items()},
        machine={**this_machine(), "load": [round(load, 1) for load in os.getloadavg()]},
        details={
            "gib": round(written.record.bytes / 2**30, 2),
            "trials": TRIALS,
            "longest": {name: round(max(taken), 2) for name, taken in seconds.items()},
            "goal": {"at most": GOAL_SECONDS, "reached": medians["load from node"] <= GOAL_SECONDS},
        },
    )


def _trained_once(width: int) -> tuple[nn.Module, Any]:
    """A layer after one step, with the optimizer's state."""
    import torch

    model = torch.nn.Linear(width, width, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, width)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    return model, optimizer


def _timed(taken: list[float], work: Callable[[], Any]) -> Any:
    began = time.perf_counter()
    result = work()
    taken.append(time.perf_counter() - began)
    return result


def _leave_the_cache(path: Path) -> None:
    """Drop a file's pages from the cache; those of a file in memory are the file, and stay."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
