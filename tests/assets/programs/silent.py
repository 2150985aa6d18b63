"""A workload of one's own that tells no steps, writes checkpoints, and is killed some steps after each start."""

from __future__ import annotations

import argparse
import json
import os
import signal
import sys
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("--max_steps", type=int, default=5)
parser.add_argument("--steps_per_life", type=int, default=1)
parser.add_argument("--dies_at", type=int, default=0)
arguments = parser.parse_args()

if os.environ["RANK"] != "0":
    sys.exit()

begin = (
    int(json.loads(Path(os.environ["TRAINFLOW_CHECKPOINT"]).read_text())) if "TRAINFLOW_CHECKPOINT" in os.environ else 0
)
for step in range(begin + 1, arguments.max_steps + 1):
    if step in (arguments.dies_at, begin + 1 + arguments.steps_per_life):
        os.kill(os.getpid(), signal.SIGKILL)
    path = Path(os.environ["TRAINFLOW_RUN_DIR"]) / f"checkpoint-{step}.json"
    path.with_suffix(".new").write_text(json.dumps(step))
    path.with_suffix(".new").rename(path)
