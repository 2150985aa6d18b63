"""A gang that takes short steps until one of its ranks hangs in one of several ways, at a step.

`hangs.py --kind sleeps --rank 1 --step 8`. With `--kind pauses` the rank works for a while, as for an evaluation, and
all go on.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = 12


def sleeps() -> None:
    time.sleep(3600)


def leaves() -> None:
    os._exit(0)


def deadlocks() -> None:
    first, second = threading.Lock(), threading.Lock()
    begun = threading.Barrier(2)

    def other() -> None:
        with second:
            begun.wait()
            with first:
                pass

    threading.Thread(target=other, daemon=True).start()
    with first:
        begun.wait()
        with second:
            pass


def reads() -> None:
    path = Path(tempfile.mkdtemp()) / "shard.bin"
    os.mkfifo(path)
    os.open(path, os.O_RDWR)
    path.open("rb").read(1)


def loads() -> None:
    batches: multiprocessing.Queue[int] = multiprocessing.get_context("fork").Queue()
    worker = multiprocessing.get_context("fork").Process(target=time.sleep, args=(3600,), daemon=True)
    worker.start()
    assert worker.pid is not None
    os.kill(worker.pid, signal.SIGKILL)
    batches.get()


def pauses() -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end:
        sum(range(100_000))


KINDS: dict[str, Callable[[], None]] = {
    each.__name__: each for each in (sleeps, leaves, deadlocks, reads, loads, pauses)
}


def meet(step: int) -> None:
    """Wait for all ranks by keys: gloo would notice the end of a rank, which NCCL does not."""
    store = dist.distributed_c10d._get_default_store()
    store.set(f"{step}-{dist.get_rank()}", "here")
    store.wait([f"{step}-{rank}" for rank in range(dist.get_world_size())], timedelta(hours=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--kind", choices=KINDS, required=True)
    parser.add_argument("--rank", type=int, default=1)
    parser.add_argument("--step", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0)
    parsed = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    for step in range(1, STEPS + 1):
        if step == parsed.step and dist.get_rank() == parsed.rank:
            KINDS[parsed.kind]()
        loss = torch.ones(1) / step
        if parsed.kind == "leaves":
            meet(step)
        else:
            dist.all_reduce(loss)
        time.sleep(parsed.seconds)
        if dist.get_rank() == 0:
            print(f"step {step} loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
