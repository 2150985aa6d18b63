"""The program of `benchmarks.recovery`: ranks that average, and save a checkpoint after each of `--steps` steps.

Rank 0 writes a JSON line when it begins, when it has imported PyTorch, when it has loaded its checkpoint, and after
each step, into a file of the run's folder, and logs its steps.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

BEGAN = time.time()
EVENTS = "events.jsonl"
SECONDS_PER_STEP = 0.1


def say(folder: Path, event: str, *, at: float | None = None, **said: object) -> None:
    """Write a JSON line of rank 0."""
    if os.environ["RANK"] != "0":
        return
    line = json.dumps({"event": event, **said, "at": at or time.time()})
    with (folder / EVENTS).open("a", encoding="utf-8") as file:
        file.write(line + "\n")


def main(folder: Path, *, steps: int) -> None:
    """Train to the last step."""
    say(folder, "began", at=BEGAN)
    import torch  # takes seconds
    import torch.distributed as dist

    say(folder, "imported")
    dist.init_process_group("gloo")
    step, weight = 0, torch.zeros(1, dtype=torch.float64)
    checkpoint = folder / "checkpoint.json"
    if checkpoint.exists():
        saved = json.loads(checkpoint.read_text())
        step, weight = saved["step"], weight + float.fromhex(saved["weight"])
    dist.barrier()  # all ranks have read the same checkpoint
    say(folder, "loaded")
    for now in range(step + 1, steps + 1):
        gradient = torch.tensor([1.0 / (3 * now + dist.get_rank())], dtype=torch.float64)
        dist.all_reduce(gradient)
        weight = 0.9 * weight + gradient
        time.sleep(SECONDS_PER_STEP)
        if dist.get_rank() == 0:
            temporary = checkpoint.with_suffix(".part")
            temporary.write_text(json.dumps({"step": now, "weight": float(weight).hex()}))
            temporary.replace(checkpoint)
        dist.barrier()
        say(folder, "step", step=now)
        if dist.get_rank() == 0:
            at, figures = time.strftime("%Y-%m-%d %H:%M:%S"), "learning_rate : 1.00e-04 throughput : 1.00"
            print(f"LOG {at} - (0, {now}) step_loss : {float(weight):.4f} {figures}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(os.environ["TRAINFLOW_RUN_DIR"]), steps=int(sys.argv[-1]))
