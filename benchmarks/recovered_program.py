"""The program of `benchmarks.recovery`: two ranks that average, and save a checkpoint after each step.

It prints a JSON line when it is imported, when it has loaded its checkpoint, and after each step.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

STEPS = 60
SECONDS_PER_STEP = 0.1


def say(**said: object) -> None:
    """Print a JSON line of rank 0."""
    if os.environ["RANK"] == "0":
        print(json.dumps({**said, "at": time.time()}), flush=True)


def main(folder: Path) -> None:
    """Train to the last step."""
    say(event="imported")
    dist.init_process_group("gloo")
    (folder / f"rank-{dist.get_rank()}").write_text(str(os.getpid()))
    step, weight = 0, torch.zeros(1, dtype=torch.float64)
    checkpoint = folder / "checkpoint.json"
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        step, weight = saved["step"], weight + float.fromhex(saved["weight"])
    dist.barrier()  # all ranks have read the same checkpoint
    say(event="loaded")
    for now in range(step + 1, STEPS + 1):
        gradient = torch.tensor([1.0 / (3 * now + dist.get_rank())], dtype=torch.float64)
        dist.all_reduce(gradient)
        weight = 0.9 * weight + gradient
        time.sleep(SECONDS_PER_STEP)
        if dist.get_rank() == 0:
            temporary = checkpoint.with_suffix(".part")
            temporary.write_text(json.dumps({"step": now, "weight": float(weight).hex()}))
            temporary.replace(checkpoint)
        dist.barrier()
        say(event="step", step=now)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
