"""The processes of a node share one reading of a checkpoint."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.integration.trainer.forked_training import forkserver
from trainer.checkpoints import checkpoint, checkpoint_files
from trainer.checkpoints.checkpoint_files import CheckpointFile
from trainer.checkpoints.fingerprint import Fingerprint
from trainer.device.distributed import Gang
from trainer.loop import saving

PROCESSES_PER_NODE = 4
NUM_WEIGHTS = 4_000_000
FILE_BYTES = 3 * 4 * NUM_WEIGHTS
"""A third of them weights, two thirds AdamW's state, as in a training: 48 MB."""


class OneOfANode:
    """The part of a process that reading a checkpoint needs, with a gang that synchronises without a network."""

    def __init__(self, rank: int, barrier: Any) -> None:
        self.leads_node = rank % PROCESSES_PER_NODE == 0
        self.gang = Gang(rank=rank, world_size=2 * PROCESSES_PER_NODE, control=None)
        self.gang.barrier = barrier.wait  # type: ignore[method-assign]


@pytest.fixture
def written(tmp_path: Path) -> CheckpointFile:
    model = torch.nn.Linear(2000, NUM_WEIGHTS // 2000, bias=False)
    optimizer = torch.optim.AdamW(model.parameters())
    model.weight.grad = torch.ones_like(model.weight)
    optimizer.step()
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    checkpoint.write(tmp_path, state, checkpoint.Progress(step=1), Fingerprint({}, {}))
    found = checkpoint_files.newest_verified(tmp_path, say=print)
    assert found is not None
    return found


def test_a_node_reads_a_checkpoint_once_and_no_process_holds_all_of_it(written: CheckpointFile, tmp_path: Path) -> None:
    """Two nodes of four processes. The node of rank 0 has read it already, when rank 0 verified it."""
    told = everybody(written, tmp_path, processes=2 * PROCESSES_PER_NODE)
    read = [rank["read_bytes"] for rank in told]
    leader = PROCESSES_PER_NODE
    assert FILE_BYTES <= read[leader] < 1.1 * FILE_BYTES
    assert sum(read) - read[leader] < 0.1 * FILE_BYTES
    copied = FILE_BYTES * 2 // 3  # on the CPU the optimizer's state is the process's own, the weights were before
    for rank in told:
        assert rank["anonymous_bytes"] < 1.15 * copied, told
    assert all(rank["equal"] for rank in told)


def everybody(written: CheckpointFile, folder: Path, *, processes: int) -> list[Mapping[str, Any]]:
    context = forkserver()
    barrier = context.Barrier(processes)
    started = [
        context.Process(target=_read, args=(rank, barrier, written, folder / f"{rank}.json"))
        for rank in range(processes)
    ]
    for process in started:
        process.start()
    for process in started:
        process.join(240)
        assert process.exitcode == 0
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(processes)]


def _read(rank: int, barrier: Any, written: CheckpointFile, told: Path) -> None:
    from typing import cast

    torch.set_num_threads(1)
    linear = torch.nn.Linear(2000, NUM_WEIGHTS // 2000, bias=False)
    optimizer = torch.optim.AdamW(linear.parameters())
    run = cast(Any, OneOfANode(rank, barrier))
    barrier.wait()
    before, read_before = anonymous_bytes(), bytes_read()
    saving.read_once_a_node(run, written)
    checkpoint.restore(written, linear, optimizer)
    told.write_text(
        json.dumps(
            {
                "read_bytes": bytes_read() - read_before,
                "anonymous_bytes": anonymous_bytes() - before,
                "equal": bool(torch.equal(linear.weight, checkpoint.load(written.path)["model"]["weight"])),
            }
        )
    )


def bytes_read() -> int:
    """What this process asked of files with read(2)."""
    fields = dict(line.split(": ") for line in Path(f"/proc/{os.getpid()}/io").read_text().splitlines())
    return int(fields["rchar"])


def anonymous_bytes() -> int:
    """Memory that is this process's alone, now."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(status["RssAnon"].split()[0])
