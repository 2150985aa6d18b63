"""The interface between the loop in `trainer.loop.training` and what it trains.

A new kind of training is a model that returns its losses, a stream of batches, and an optimizer: one class with
the members of `Task`. Gangs, checkpoints, resuming, metrics, compiling and stopping are provided by the loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from trainflow.protocol.resume_bounds import ResumeBound

if TYPE_CHECKING:
    from torch import nn

    from trainer.checkpoints.fingerprint import Fingerprint
    from trainer.data.data_order import DataOrder, Positions
    from trainer.device import Device, Precision
    from trainer.device.distributed import Gang
    from trainer.loop.training_config import TrainingConfig
    from trainer.optimizers.building import Optimizer

Model = TypeVar("Model", bound="nn.Module")


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The numbers that control the loop."""

    seed: int
    """Determines the initial weights, the order of samples and dropout."""
    max_steps: int
    """Steps of the whole training."""
    micro_batch_size: int
    """Samples of one forward pass of one process."""
    micro_batches: int
    """Micro-batches of each process in one step."""
    max_grad_norm: float
    """Gradients with a larger 2-norm are scaled down to it; infinity leaves them as they are."""
    precision: Precision
    """Precision of matrix products."""


@dataclass(frozen=True, kw_only=True)
class Samples:
    """Properties of one sample, for rates and for messages."""

    name: str
    """Name of samples, in the plural."""
    tokens: int | None = None
    """Tokens of one sample, including padding; None for samples of other kinds."""
    operations: int | None = None
    """Floating-point operations of the model to learn from one sample; None if they have not been counted."""


class Batch(Protocol):
    """One micro-batch; always of the same shape, so that nothing is compiled again."""

    def on(self, device: Device) -> Batch:
        """The batch with its tensors on a device, in the form that the device computes fastest with."""


class Batches(Protocol):
    """The stream of samples; each rank reads its own part."""

    order: DataOrder
    seconds_waited: float
    """Time that the training has waited for samples."""

    def micro_batch(self, positions: Positions) -> Batch:
        """Return the samples at these positions of the stream, in host memory."""


class Task(Protocol[Model]):
    """One kind of training, on one data set, with the settings of the user."""

    @property
    def plan(self) -> Plan:
        """The numbers that control the loop."""

    @property
    def samples(self) -> Samples:
        """Properties of one sample."""

    @property
    def losses(self) -> Sequence[str]:
        """Names of the losses that the model returns; their sum is minimised."""

    @property
    def fingerprint(self) -> Fingerprint:
        """The settings that a checkpoint must share with this training."""

    def open_batches(self, gang: Gang) -> Batches:
        """Open the part of the stream that this rank of the gang reads."""

    def build_model(self, device: Device, *, compiler: str | None) -> Model:
        """Build the model on the device, with initial weights from torch's generator.

        The model maps a batch to a tuple of its losses in nats, float32 scalars, in the order of `losses`.
        Checkpoints hold its state dict.

        Args:
            device: The device of the model.
            compiler: Backend of torch.compile to compile it with; None not to compile it.
        """

    def build_optimizer(self, model: Model, device: Device, gang: Gang) -> Optimizer:
        """Build the optimizer; the loop sets its learning rate in every step."""

    def learning_rate(self, step: int) -> float:
        """Learning rate of a step; steps are counted from 1."""

    def start(self, model: Model, process: TrainingProcess) -> None:
        """Load the initial weights of a new training, if the user gave any."""

    def conclude(self, model: Model, process: TrainingProcess, *, last_loss: float) -> Mapping[str, Any]:
        """Finish after the last step of this process; called on every rank.

        Args:
            model: The trained model.
            process: This process and what it trains.
            last_loss: Loss of the last logged step, in nats, mean over the ranks.

        Returns:
            Fields that the task adds to the training's result.
        """


@dataclass(frozen=True)
class TrainingProcess:
    """Facts that one process of the gang knows before the first step; they do not change while it trains."""

    config: TrainingConfig
    task: Task[Any]
    device: Device
    gang: Gang
    output_dir: Path
    peak_tflops: float | None = None
    """Peak of each process's device; None if it is not known."""
    peak_source: str = "unknown"
    """Source of that number, in words for a person."""
    leads_node: bool = True
    """Whether this process does the work that one process does for all on its node."""
    local_dir: Path | None = None
    """Folder of the node for its copies of checkpoints; None without one."""
    graphs_only: bool = False
    """Whether a tool only records the graphs: the numbers mean nothing, so no line, event or checkpoint is written."""
    earlier_dirs: tuple[Path, ...] = ()
    """The same folder of the runs that this one continues, the newest first. They are read and not written."""
    earlier_bounds: Mapping[Path, ResumeBound] = field(default_factory=dict)
    """Bounds for the checkpoints in these folders."""

    @property
    def global_batch_size(self) -> int:
        """Samples in a step."""
        plan = self.task.plan
        return plan.micro_batch_size * plan.micro_batches * self.gang.world_size

    @property
    def records(self) -> bool:
        """Whether this process writes the log, the events and the checkpoints for all."""
        return self.gang.rank == 0 and not self.graphs_only

    def say(self, sentence: str) -> None:
        """Print a sentence in the log, once for the gang."""
        if self.gang.rank == 0:
            print(sentence, flush=True)
