"""A checkpoint that looks complete and cannot be opened costs one attempt: the next one takes the checkpoint before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.test_examples import run

PROGRAM = """
import argparse
import os
import signal
import time
from pathlib import Path

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--load", type=Path)
parser.add_argument("--damage", type=int, nargs="*", default=[20])
given = parser.parse_args()
step, weights = 0, [1.0] * 200
if given.load:
    header, *lines = given.load.read_text().splitlines()
    step, weights = int(header), [float(line) for line in lines]
    if len(weights) != 200:
        raise ValueError(f"there are {len(weights)} weights in place of 200")
if os.environ["TRAINFLOW_NODE_RANK"] != "0":
    while not (given.folder / "trained").exists():
        time.sleep(0.1)
while step < 40:
    step, weights = step + 1, [weight * 0.9 for weight in weights]
    print(f'{{"step": {step}, "loss": {weights[0]}}}', flush=True)
    if step % 10 == 0:
        text = "\\n".join(map(str, [step, *weights]))
        mark = given.folder / f"was_killed_{step}"
        is_killed = step in given.damage and not mark.exists()
        (given.folder / f"state-{step}").write_text(text[: len(text) // 2] if is_killed else text)
        if is_killed:
            mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)
(given.folder / "trained").touch()
"""


def spec(num_nodes: int, **arguments: Any) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "unknown-format",
        "workload": {
            "script": "train.py",
            "code": ".",
            "image": "python:3.13-slim",
            "launcher": "none",
            "positional": ["{run_dir}"],
            "arguments": arguments,
            "shared_memory_gib": 1,
        },
        "compute": {
            "instance_type": "c7i.xlarge",
            "num_nodes": num_nodes,
            "processes_per_node": 1,
            "check_nodes": False,
        },
        "progress": {"json_lines": True},
        "checkpoint": {"path": "state-{step}", "resume": ["--load", "{checkpoint}"], "settled_seconds": 0},
        "limits": {"max_duration_hours": 1},
    }


@pytest.mark.slow
@pytest.mark.parametrize("num_nodes", [1, 3])
def test_a_program_that_cannot_open_its_checkpoint_goes_on_with_the_one_before(num_nodes: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(spec(num_nodes)))

    ran = run(tmp_path, "spec.yaml", "--time-scale", "30")

    killed, unusable = ran.record["restarts"]
    assert (killed["error"], unusable["error"]) == ("WorkerFailed", "CheckpointUnusable")
    assert unusable["checkpoint"].endswith("/state-20")
    assert "/state-20, so the next attempt resumes from " in unusable["message"]
    assert ran.record["training"]["checkpoint"].endswith("/state-40")
    assert ran.record["training"]["steps"] == 40
    assert ran.record["avoided_nodes"] == []
    assert "after CheckpointUnusable: The program ended before its first step while it resumed" in ran.printed
    assert any("/state-20" in warning for warning in ran.record["warnings"])
    assert json.dumps(ran.record["warnings"][0])[1:-1] in ran.printed
