"""Any task trains, is written down and goes on in the same loop: a straight line is fitted here."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import nn

from trainer import device
from trainer.checkpoints import checkpoint
from trainer.checkpoints.fingerprint import Fingerprint
from trainer.data.data_order import DataOrder, Positions, cut_blocks
from trainer.device import Device
from trainer.device.distributed import Gang
from trainer.loop import training
from trainer.loop.task import Plan, Samples, TrainingProcess
from trainer.loop.training_config import TrainingConfig
from trainer.optimizers.building import Optimizer
from trainer.runtime.errors import CheckpointInvalid

NUM_POINTS = 40


class Points(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor

    def on(self, device: Device) -> Points:
        return Points(*map(device.load, self))


class Line(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.map = nn.Linear(1, 1)

    def forward(self, points: Points) -> tuple[torch.Tensor, torch.Tensor]:
        """The mean square error, and a penalty on the slope."""
        return (self.map(points.x) - points.y).square().mean(), 1e-4 * self.map.weight.square().sum()


class PointReader:
    def __init__(self, seed: int) -> None:
        self.order = DataOrder(cut_blocks([NUM_POINTS]), seed=seed, lanes=1)
        self.seconds_waited = 0.0

    def micro_batch(self, positions: Positions) -> Points:
        (piece,) = self.order.pieces(int(positions[0]), len(positions))
        x = torch.from_numpy(np.linspace(-1, 1, NUM_POINTS)[piece.rows]).float().unsqueeze(-1)
        return Points(x, 3 * x + 2)


@dataclass(frozen=True)
class Fitting:
    """All that is particular to fitting a line."""

    plan: Plan
    rate: float = 0.3

    samples = Samples(name="points")
    losses = ("error", "penalty")

    @property
    def fingerprint(self) -> Fingerprint:
        return Fingerprint({"weight": 1, "bias": 1}, {"learning_rate": self.rate, "seed": self.plan.seed})

    def open_batches(self, gang: Gang) -> PointReader:
        return PointReader(self.plan.seed)

    def build_model(self, device: Device, *, compiler: str | None) -> Line:
        return Line().to(device.torch_device)

    def build_optimizer(self, model: Line, device: Device, gang: Gang) -> Optimizer:
        return torch.optim.SGD(model.parameters(), lr=self.rate, momentum=0.5)

    def learning_rate(self, step: int) -> float:
        return self.rate / math.sqrt(step)

    def start(self, model: Line, process: TrainingProcess) -> None:
        with torch.no_grad():
            model.map.bias.fill_(5.0)

    def conclude(self, model: Line, process: TrainingProcess, *, last_loss: float) -> Mapping[str, Any]:
        return {"slope": round(model.map.weight.item(), 2), "offset": round(model.map.bias.item(), 2)}


TASK = Fitting(
    Plan(seed=3, max_steps=60, micro_batch_size=10, micro_batches=2, max_grad_norm=math.inf, precision="float32")
)
CONFIG = TrainingConfig(device="cpu", log_steps=20, checkpoint_steps=1000)


def process_in(folder: Path, task: Fitting = TASK, config: TrainingConfig = CONFIG) -> TrainingProcess:
    gang = Gang(rank=0, world_size=1, control=None)
    return TrainingProcess(config, task, device.choose("cpu", local_rank=0), gang, folder)


def test_the_loop_trains_what_it_does_not_know(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = training.train(process_in(tmp_path))
    assert result is not None
    assert (result["slope"], result["offset"]) == (pytest.approx(3, abs=0.1), pytest.approx(2, abs=0.1))
    assert (result["steps"], result["first_loss"] > 10 * result["last_loss"]) == (60, True)
    out = capsys.readouterr().out
    assert "points/s" in out
    assert "tokens/s" not in out
    assert '"error": ' in out
    assert '"penalty": ' in out


def test_an_interrupted_training_ends_with_the_same_weights(tmp_path: Path) -> None:
    whole = training.train(process_in(tmp_path / "whole"))
    for steps in (7, 20, -1):
        parts = training.train(process_in(tmp_path / "parts", config=replace(CONFIG, steps_this_run=steps)))
    assert whole is not None
    assert parts is not None
    one, other = (checkpoint.load(Path(result["checkpoint"]))["model"] for result in (whole, parts))
    assert all(torch.equal(one[name], other[name]) for name in one)


def test_another_training_of_the_task_is_refused(tmp_path: Path) -> None:
    training.train(process_in(tmp_path, config=replace(CONFIG, steps_this_run=2)))
    with pytest.raises(CheckpointInvalid, match=r"--learning_rate .*0\.2 .*0\.3"):
        training.train(process_in(tmp_path, replace(TASK, rate=0.2)))
