"""What is trained, as far as the loop in `trainer.loop.training` has to know it.

A new kind of training is a model that answers with its losses, a stream of batches, and an optimizer: one class with
the members of `Task`. Gangs, checkpoints, resuming, metrics, compiling and stopping come with the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import torch
    from torch import nn

    from trainer.checkpoints.fingerprint import Fingerprint
    from trainer.data.data_order import DataOrder, Positions
    from trainer.device import Device, Precision
    from trainer.device.distributed import Gang
    from trainer.loop.training_process import TrainingProcess
    from trainer.optimizers.building import Optimizer

Model = TypeVar("Model", bound="nn.Module")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The numbers that the loop goes by."""

    seed: int
    """Decides initial weights, the order of samples and dropout."""
    max_steps: int
    """Steps of the whole training."""
    micro_batch_size: int
    """Samples that one process puts through the model at once."""
    micro_batches: int
    """Micro-batches of each process whose gradients make one step."""
    max_grad_norm: float
    """Longer gradients are scaled down to this 2-norm; infinity leaves them as they are."""
    precision: Precision
    """What matrix products are computed in."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """What one sample is, for rates and for people."""

    name: str
    """In the plural."""
    tokens: int | None = None
    """Tokens of one sample, padding included; None where there are none."""
    operations: int | None = None
    """Operations that the model takes to learn from one; None where nobody has counted them."""


class Batch(Protocol):
    """What one process puts through the model at once; always of the same shape, so that nothing recompiles."""

    def map(self, function: Callable[[torch.Tensor], torch.Tensor]) -> Batch:
        """The same with every tensor put through a function."""


class Batches(Protocol):
    """The stream of samples, of which each rank reads its own."""

    order: DataOrder
    seconds_waited: float
    """Time for which the training has stood still for data."""

    def micro_batch(self, positions: Positions) -> Batch:
        """The samples at these positions of the stream, in host memory."""


class Task(Protocol[Model]):
    """One kind of training, on one data set, with the settings that were asked for."""

    @property
    def plan(self) -> Plan:
        """The numbers that the loop goes by."""

    @property
    def samples(self) -> Samples:
        """What one sample is."""

    @property
    def losses(self) -> Sequence[str]:
        """Names of the losses that the model answers with; their sum is minimised."""

    @property
    def fingerprint(self) -> Fingerprint:
        """What a checkpoint has to agree on with this training."""

    def open_batches(self, gang: Gang) -> Batches:
        """The stream of samples as this rank of the gang reads it."""

    def build_model(self, device: Device, *, compiler: str | None) -> Model:
        """A model with its initial weights, drawn from torch's generator, on the device.

        Called with a batch it answers with a tuple of its losses in nats, float32 scalars, in the order of `losses`.
        What its state dict holds is what checkpoints hold.

        Args:
            device: Where it shall live.
            compiler: Backend of torch.compile to compile it with; None to leave it as it is.
        """

    def build_optimizer(self, model: Model, device: Device, gang: Gang) -> Optimizer:
        """What changes the weights by the gradients; the loop sets its learning rate in every step."""

    def learning_rate(self, step: int) -> float:
        """The rate of a step; steps are counted from 1."""

    def start(self, model: Model, process: TrainingProcess) -> None:
        """Give a new training other weights than its initial ones, if that was asked for."""

    def conclude(self, model: Model, process: TrainingProcess, *, last_loss: float) -> Mapping[str, Any]:
        """Do what comes behind the last step of a process; called on every rank.

        Args:
            model: As it was trained.
            process: This process and what it trains.
            last_loss: Mean over the ranks, in nats, of the last logged step.

        Returns:
            What the task adds to the training's result.
        """
