"""A rank that leaves with exit code 0 is the cause in a gang of any size, and no node is avoided for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.integration.test_examples import command

PROGRAM = """
import os, sys, time
import torch
import torch.distributed as dist

leaver, last = int(sys.argv[1]), int(sys.argv[2])
dist.init_process_group("gloo")
for step in range(1, 41):
    dist.all_reduce(torch.ones(1))
    if dist.get_rank() == 0:
        print(f"step {step} loss {3 / step:.4f}", flush=True)
    if (step, dist.get_rank()) == (last, leaver):
        print("its part of the data ends here", flush=True)
        os._exit(0)
    time.sleep(0.1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("num_nodes", "leaver"), [(5, 3), (7, 6)])
def test_a_rank_that_leaves_is_named_and_no_node_is_avoided(num_nodes: int, leaver: int, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    document = {
        "version": 1,
        "name": "leaves",
        "workload": {
            "script": "train.py",
            "code": ".",
            "image": "pytorch/pytorch:2.9.1-cuda12.8-cudnn9-runtime",
            "positional": [str(leaver), "8"],
            "env": {"OMP_NUM_THREADS": "1"},
            "shared_memory_gib": 1,
        },
        "compute": {
            "instance_type": "c7i.xlarge",
            "num_nodes": num_nodes,
            "processes_per_node": 1,
            "check_nodes": False,
        },
        "limits": {"max_duration_hours": 1, "max_restarts": 1},
    }
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(document))

    words = command("spec.yaml", "--time-scale", "30")
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=240)

    record = json.loads((tmp_path / "out/latest/run.json").read_text())
    error = record["error"]
    assert (done.returncode, record["status"], error["name"]) == (2, "FAILED", "ScriptFailed")
    assert record["restarts"] == []
    assert error["message"].startswith(f"The program of node {leaver} (pod '")
    assert "ended with exit code 0 after step 8 while the others went on: its part of the data" in error["message"]
    assert f"-training-1-{leaver}-" in error["pod"]
    assert record["avoided_nodes"] == []
