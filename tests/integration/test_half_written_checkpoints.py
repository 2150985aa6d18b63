"""A run whose program is killed while it saves goes on from the checkpoint before."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.integration.test_examples import logs_of_node_0, run

TRAINER = """
import os
import signal

import torch
import transformers


class Regression(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Linear(4, 1)

    def forward(self, values, labels):
        return {"loss": (self.weight(values).squeeze(-1) - labels).square().mean()}


class KilledOnce(transformers.Trainer):
    def _save_scaler(self, output_dir):  # between the optimizer and the states of the random generators
        mark = os.path.join(self.args.output_dir, "was_killed")
        if self.state.global_step == 20 and not os.path.exists(mark):
            open(mark, "w").close()
            os.kill(os.getpid(), signal.SIGKILL)
        super()._save_scaler(output_dir)


parser = transformers.HfArgumentParser(transformers.TrainingArguments)
(arguments,) = parser.parse_args_into_dataclasses()
samples = [{"values": torch.full((4,), float(number)), "labels": torch.tensor(1.0)} for number in range(64)]
trainer = KilledOnce(Regression(), arguments, train_dataset=samples)
trainer.train(resume_from_checkpoint=arguments.resume_from_checkpoint)
"""

LOOP = """
import argparse
import os
import signal

import torch

parser = argparse.ArgumentParser()
parser.add_argument("--output_dir")
parser.add_argument("--resume")
given = parser.parse_args()
state = torch.load(given.resume) if given.resume else {"step": 0, "weights": torch.zeros(1000)}
while state["step"] < 40:
    state = {"step": state["step"] + 1, "weights": state["weights"] + 1}
    print({"loss": float(1 / state["weights"][0]), "step": state["step"]}, flush=True)
    if state["step"] % 10 == 0:
        path = f"{given.output_dir}/checkpoint_{state['step']}.pth.tar"
        torch.save(state, path)
        if state["step"] == 20 and not os.path.exists(f"{given.output_dir}/was_killed"):
            open(f"{given.output_dir}/was_killed", "w").close()
            os.truncate(path, os.path.getsize(path) // 2)
            os.kill(os.getpid(), signal.SIGKILL)
"""


def spec(arguments: dict[str, Any], checkpoint: dict[str, Any]) -> dict[str, Any]:
    return {
        "version": 1,
        "name": "half-written",
        "workload": {
            "script": "train.py",
            "code": ".",
            "image": "huggingface/transformers-pytorch-gpu:latest",
            "launcher": "none",
            "arguments": {"output_dir": "{run_dir}", **arguments},
            "shared_memory_gib": 1,
        },
        "compute": {"instance_type": "c7i.xlarge", "num_nodes": 1, "processes_per_node": 1, "check_nodes": False},
        "checkpoint": {**checkpoint, "settled_seconds": 0},
        "limits": {"max_duration_hours": 1, "stall_minutes": 10, "restart_in_place": False},
    }


PROGRAMS = {
    "the model and the optimizer of transformers' Trainer": (
        TRAINER,
        spec(
            {"max_steps": 40, "save_steps": 10, "logging_steps": 2, "use_cpu": True, "report_to": "none"},
            {"path": "checkpoint-{step}", "resume": ["--resume_from_checkpoint", "{checkpoint}"]},
        ),
        "checkpoint-{}",
    ),
    "half of a file of torch": (
        LOOP,
        spec({}, {"path": "checkpoint_{step}.pth.tar", "resume": ["--resume", "{checkpoint}"]}),
        "checkpoint_{}.pth.tar",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("left", PROGRAMS)
def test_a_program_killed_while_it_saves_resumes_from_the_checkpoint_before(left: str, tmp_path: Path) -> None:
    program, document, name = PROGRAMS[left]
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "spec.yaml").write_text(yaml.safe_dump(document))

    ran = run(tmp_path, "spec.yaml", "--time-scale", "30")

    assert [restart["error"] for restart in ran.record["restarts"]] == ["WorkerFailed"]
    _, second = logs_of_node_0(ran)
    assert f"{name.format(20)} is not complete and is passed over: " in second
    assert f"/{name.format(10)}.\n" in second
    assert ran.record["training"]["checkpoint"].endswith(name.format(40))
    assert json.dumps({"trainflow_resumed": {"checkpoint": 10}}) in second
