"""Telling digits apart, as a task of the training loop.

Shape suffixes: B = pictures in the micro-batch, H = W = rows and columns of a picture, K = classes.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trainer.checkpoints.fingerprint import Fingerprint
from trainer.classification import digits
from trainer.classification.config import ClassificationConfig
from trainer.classification.digits import Digits
from trainer.data import data_order
from trainer.data.data_order import DataOrder, Positions, cut_blocks
from trainer.device import Device
from trainer.device.distributed import Gang
from trainer.loop.task import Plan, Samples, TrainingProcess
from trainer.optimizers.building import Optimizer

MOMENTUM = 0.9
"""The usual; without it the few steps that many ranks leave of an epoch teach nothing."""


class Pictures(NamedTuple):
    """Batch that one process puts through the model at once."""

    pictures_BHW: torch.Tensor
    """Ink of each pixel, float32: 0 is paper, 1 is ink."""
    labels_B: torch.Tensor

    def on(self, device: Device) -> Pictures:
        """The pictures and labels on a device."""
        return Pictures(*map(device.load, self))


class Losses(NamedTuple):
    """Loss of a micro-batch in nats, a float32 scalar on the device."""

    cross_entropy: torch.Tensor


class Classifier(nn.Sequential):
    """Layers that score pictures, (B, H, W) in and (B, K) out, and answer with the loss of these scores."""

    def forward(self, batch: Pictures) -> Losses:
        """The loss of a micro-batch."""
        return Losses(functional.cross_entropy(self.scores(batch.pictures_BHW), batch.labels_B))

    def scores(self, pictures_BHW: torch.Tensor) -> torch.Tensor:
        """Unnormalised scores, (B, K)."""
        scores_BK: torch.Tensor = super().forward(pictures_BHW)  # type: ignore[no-untyped-call]
        return scores_BK


@dataclass(frozen=True)
class Classification:
    """A small network, pictures of digits, and gradient descent with momentum."""

    config: ClassificationConfig
    make_model: Callable[[], Classifier]
    train_set: Digits
    test_set: Digits
    world_size: int
    publish: Callable[[Classifier], Mapping[str, Any]] | None = None
    """Publishes the trained model on rank 0; its return value is added to the result."""

    losses = Losses._fields
    samples = Samples(name="pictures")

    @cached_property
    def plan(self) -> Plan:
        """The numbers that the loop goes by; the last step begins inside the last epoch."""
        config = self.config
        global_batch_size = config.micro_batch_size * self.world_size
        return Plan(
            seed=config.seed,
            max_steps=-(-config.epochs * len(self.train_set) // global_batch_size),
            micro_batch_size=config.micro_batch_size,
            micro_batches=1,
            max_grad_norm=math.inf,
            precision="float32",
        )

    @cached_property
    def fingerprint(self) -> Fingerprint:
        """Inputs that decide the weights. The number of processes is left out: an elastic gang continues with those
        that it has."""
        with torch.device("meta"):
            shapes = {name: parameter.numel() for name, parameter in self.make_model().named_parameters()}
        digest = hashlib.sha256(self.train_set.pictures_NHW.tobytes() + self.train_set.labels_N.tobytes()).hexdigest()
        settings = {
            "dataset": f"{len(self.train_set)} pictures ({digest[:12]})",
            "data_order": data_order.VERSION,
            "micro_batch_size": self.config.micro_batch_size,
            "epochs": self.config.epochs,
            "learning_rate": self.config.learning_rate,
            "optimizer": "sgd",
            "seed": self.config.seed,
        }
        return Fingerprint(shapes, settings)

    def open_batches(self, gang: Gang) -> PictureReader:
        """The stream of pictures."""
        return PictureReader(self.train_set, seed=self.config.seed, world_size=gang.world_size)

    def build_model(self, device: Device, *, compiler: str | None) -> Classifier:
        """The network that was asked for."""
        model = self.make_model().to(device.torch_device)
        if compiler is not None:
            model.compile(dynamic=False, backend=compiler)
        return model

    def build_optimizer(self, model: Classifier, device: Device, gang: Gang) -> Optimizer:
        """Gradient descent with momentum."""
        return torch.optim.SGD(model.parameters(), lr=self.config.learning_rate, momentum=MOMENTUM)

    def learning_rate(self, step: int) -> float:
        """The same in every step."""
        return self.config.learning_rate

    def start(self, model: Classifier, process: TrainingProcess) -> None:
        """A training begins with its initial weights."""

    def conclude(self, model: Classifier, process: TrainingProcess, *, last_loss: float) -> Mapping[str, Any]:
        """Print the test accuracy in the words of the tutorial's last lines."""
        share = accuracy(model, self.test_set, process)
        process.say(f"Final loss is {last_loss:.4f}")
        process.say("----------End Training ---------------")
        published = self.publish(model) if self.publish is not None and process.records else {}
        return {"accuracy": round(share, 4), **published}


class PictureReader:
    """Reads the pictures at one rank's positions of the stream; all of them are in memory."""

    def __init__(self, digits: Digits, *, seed: int, world_size: int) -> None:
        """
        Args:
            digits: What is trained on.
            seed: Of the order of pictures.
            world_size: Number of processes.
        """
        self._digits = digits
        self._world_size = world_size
        blocks = cut_blocks([len(digits)], block_rows=len(digits))
        self.order = DataOrder(blocks, seed=seed, lanes=1)
        self.seconds_waited = 0.0

    def micro_batch(self, positions: Positions) -> Pictures:
        """The pictures at these positions, which are a world size apart."""
        pieces = self.order.pieces(int(positions[0]), len(positions), step=self._world_size)
        rows = np.concatenate([piece.rows for piece in pieces])
        return as_pictures(Digits(self._digits.pictures_NHW[rows], self._digits.labels_N[rows]))


def as_pictures(digits: Digits) -> Pictures:
    """Pictures and labels as tensors."""
    return Pictures(torch.from_numpy(digits.pictures_NHW.astype("float32") / 255), torch.from_numpy(digits.labels_N))


def make_task(
    config: ClassificationConfig,
    data_dir: Path | None,
    gang: Gang,
    make_model: Callable[[], Classifier],
    *,
    publish: Callable[[Classifier], Mapping[str, Any]] | None = None,
) -> Classification:
    """The task on pictures that are read or drawn; each rank reads or draws them all.

    Args:
        config: What was asked for.
        data_dir: Folder with MNIST's files; None to draw.
        gang: The ranks.
        make_model: Draws initial weights from torch's generator.
        publish: Publishes the trained model on rank 0; its return value is added to the result.

    Raises:
        DatasetNotFound, DatasetInvalid: If pictures are missing or damaged.
    """
    train_set = digits.load(data_dir, "train", num_drawn=config.num_drawn, seed=config.seed)
    test_set = digits.load(data_dir, "test", num_drawn=-(-config.num_drawn // 10), seed=config.seed)
    return Classification(config, make_model, train_set, test_set, gang.world_size, publish)


@torch.no_grad()
def accuracy(model: Classifier, test_set: Digits, process: TrainingProcess) -> float:
    """Share of the test pictures that the model recognises; each rank tests its share of them."""
    rank, world_size = process.gang.rank, process.gang.world_size
    mine = as_pictures(Digits(test_set.pictures_NHW[rank::world_size], test_set.labels_N[rank::world_size]))
    batch = mine.on(process.device)
    model.eval()
    right = (model.scores(batch.pictures_BHW).argmax(dim=-1) == batch.labels_B).sum().item()
    model.train()
    recognised, seen = process.gang.means([float(right), float(len(batch.labels_B))])
    return recognised / seen
