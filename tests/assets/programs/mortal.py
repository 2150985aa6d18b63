"""A small data-parallel training whose ranks can be killed: `mortal.py [--from CHECKPOINT]`, under torchrun or alone.

Every rank contributes to the weight of each step. Rank 0 saves it every second step, and the result at the end. A rank
writes its process id into a file when it has joined the gang. MORTAL_HANGS makes ranks wait for ever when they lose
another one, as a collective on accelerators does; MORTAL_DIES_AT kills the last rank at a step, MORTAL_RAISES_AT raises
an exception there.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = int(os.environ.get("MORTAL_STEPS", "20"))
RUN = Path(os.environ["TRAINFLOW_RUN_DIR"])
RANK = int(os.environ.get("RANK", os.environ.get("TRAINFLOW_NODE_RANK", "0")))
SIZE = int(os.environ.get("WORLD_SIZE", os.environ.get("TRAINFLOW_NUM_NODES", "1")))


def write(path: Path, text: str) -> None:
    temporary = path.with_name(f".{path.name}.{RANK}")
    temporary.write_text(text)
    temporary.replace(path)


def train(step: int, weight: torch.Tensor) -> torch.Tensor:
    for now in range(step + 1, STEPS + 1):
        gradient = torch.tensor([1.0 / (now * 3 + RANK)], dtype=torch.float64)
        dist.all_reduce(gradient)
        weight = weight * 0.9 + gradient
        if RANK == 0:
            print(json.dumps({"step": now, "loss": weight.item()}), flush=True)
            if now % 2 == 0:
                write(RUN / f"checkpoint-{now}.json", json.dumps({"step": now, "weight": weight.item().hex()}))
        if str(now) == os.environ.get("MORTAL_RAISES_AT") and RANK == SIZE - 1:
            raise IndexError("sample 7 does not exist")
        if str(now) == os.environ.get("MORTAL_DIES_AT") and RANK == SIZE - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.05)
    return weight


def main() -> None:
    step, weight = 0, torch.zeros(1, dtype=torch.float64)
    if "--from" in sys.argv:
        saved = json.loads(Path(sys.argv[sys.argv.index("--from") + 1]).read_text())
        step, weight = saved["step"], torch.tensor([float.fromhex(saved["weight"])], dtype=torch.float64)
    store = f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"
    is_torchrun = "TORCHELASTIC_RUN_ID" in os.environ
    dist.init_process_group(
        "gloo",
        init_method="env://" if is_torchrun else store,
        rank=RANK,
        world_size=SIZE,
        timeout=timedelta(seconds=60),
    )
    dist.barrier()
    (RUN / "pids").mkdir(parents=True, exist_ok=True)
    write(RUN / "pids" / str(RANK), str(os.getpid()))
    try:
        weight = train(step, weight)
    except RuntimeError:
        while os.environ.get("MORTAL_HANGS"):
            time.sleep(60)
        raise
    if RANK == 0:
        write(RUN / "weight", weight.item().hex())
    dist.destroy_process_group()


main()
