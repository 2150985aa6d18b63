"""The training loop of the two small examples, data-parallel.

The same order of samples, the same checkpoints, metrics lines and way to stop as in pretraining, around a model of a
few layers and stochastic gradient descent with momentum.

Shape suffixes: B = pictures in the micro-batch, H = W = rows and columns of a picture, K = classes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from trainer import checkpoint_files, compilation, gradients
from trainer import device as devices
from trainer.checkpoint import Progress
from trainer.checkpoint_files import CheckpointFile, Record
from trainer.classification import digits
from trainer.classification.config import ClassificationConfig
from trainer.classification.digits import Digits
from trainer.data_order import DataOrder, blocks_of, micro_batch_positions
from trainer.device import Device
from trainer.distributed import Gang, join
from trainer.environment import Environment
from trainer.errors import ConfigInvalid, StorageFailed, Terminated
from trainer.files import require_writable
from trainer.metrics import MetricsLog, StepMetrics, Stopwatch
from trainer.stopping import StopRequest

MOMENTUM = 0.9
"""The usual; without it the few steps that many ranks leave of an epoch teach nothing."""


@dataclass(frozen=True)
class Classification:
    """One process's part in one training."""

    config: ClassificationConfig
    model: nn.Module
    train_set: Digits
    test_set: Digits
    device: Device
    gang: Gang
    output_dir: Path
    graphs_only: bool = False
    """A tool records the graphs and the numbers mean nothing: no lines, no events, no checkpoints."""

    @property
    def global_batch_size(self) -> int:
        """Pictures in a step."""
        return self.config.micro_batch_size * self.gang.world_size

    @property
    def max_steps(self) -> int:
        """Steps of the whole training; the last one begins inside the last epoch."""
        return -(-self.config.epochs * len(self.train_set) // self.global_batch_size)

    @property
    def records(self) -> bool:
        """Whether this process writes for all."""
        return self.gang.rank == 0 and not self.graphs_only

    def say(self, sentence: str) -> None:
        """Tell the reader of the log, once for the gang."""
        if self.gang.rank == 0:
            print(sentence, flush=True)


@contextmanager
def joined(
    config: ClassificationConfig, environment: Environment, make_model: Callable[[], nn.Module]
) -> Iterator[Classification]:
    """Meet the other processes, read or draw the pictures, and make the model: the same on every rank.

    Args:
        config: What was asked for.
        environment: Who this process is.
        make_model: Draws its initial weights from torch's generator.

    Raises:
        ConfigInvalid: If there is no folder to write to.
        DatasetNotFound, DatasetInvalid: If there are no pictures to learn from.
    """
    output_dir = config.output_dir or environment.run_dir
    if output_dir is None:
        raise ConfigInvalid("--output_dir is missing; give it, or set TRAINFLOW_RUN_DIR.")
    data_dir = config.data_dir or environment.data_dir
    device = devices.choose(config.device, local_rank=environment.local_rank)
    with join(environment, device) as gang:
        train_set = digits.load(data_dir, "train", num_drawn=config.num_drawn, seed=config.seed)
        test_set = digits.load(data_dir, "test", num_drawn=-(-config.num_drawn // 10), seed=config.seed)
        torch.manual_seed(config.seed)
        model = make_model().to(device.torch_device)
        yield Classification(
            config, model, train_set, test_set, device, gang, output_dir, graphs_only=environment.extract_graphs
        )


def train(job: Classification) -> Mapping[str, Any] | None:
    """Train from the newest verified checkpoint to the last step asked for.

    Returns:
        The result, on rank 0; None on the others.

    Raises:
        Terminated: After SIGTERM, once the step is written down.
    """
    config, gang = job.config, job.gang
    order = DataOrder(blocks_of([len(job.train_set)], block_rows=len(job.train_set)), seed=config.seed, lanes=1)
    optimizer = torch.optim.SGD(job.model.parameters(), lr=config.learning_rate, momentum=MOMENTUM)
    progress, saved = resume(job, optimizer)
    exchange = gradients.exchange(job.model, gang, job.device, bucket_mib=None)
    last_step = job.max_steps if config.steps_this_run == -1 else progress.step + config.steps_this_run
    last_step = min(last_step, job.max_steps)
    log = MetricsLog(job.output_dir if job.records else None, first_step=progress.step + 1)
    stopwatch, told_until, stop = Stopwatch(), progress.samples_seen, StopRequest.listening()
    for step in range(progress.step + 1, last_step + 1):
        pictures_BHW, labels_B = micro_batch(job, order, progress.samples_seen)
        loss: torch.Tensor = functional.cross_entropy(exchange.replica(pictures_BHW), labels_B)
        loss.backward()  # type: ignore[no-untyped-call]
        exchange.finish()
        job.device.take_step(optimizer)
        optimizer.zero_grad()
        progress, stopping = progress.after_step(job.global_batch_size), False
        if step % config.log_steps == 0 or step in (1, last_step):
            mean_loss, share_asked = gang.means([loss.item(), float(stop.received)])
            throughput, told_until = stopwatch.lap(progress.samples_seen - told_until), progress.samples_seen
            epoch = order.epoch(progress.samples_seen - job.global_batch_size)
            log.record(StepMetrics(epoch, step, mean_loss, config.learning_rate, throughput))
            progress, stopping = progress.after_logging(mean_loss), share_asked > 0
        if job.records and (step % config.checkpoint_steps == 0 or step == last_step or stopping):
            saved = save(job, progress, optimizer)
        if stopping:
            log.close()
            raise Terminated(f"Stopped by SIGTERM after step {step}, which is saved; the same command goes on from it.")
    log.close()
    return result(job, progress, saved, stopwatch.overall())


def micro_batch(job: Classification, order: DataOrder, first: int) -> tuple[torch.Tensor, torch.Tensor]:
    """This rank's pictures of a step, from 0 for paper to 1 for ink, and their labels; on the device.

    Args:
        job: The training.
        order: The stream of pictures.
        first: Position of the step's first picture.
    """
    _, positions = micro_batch_positions(
        first,
        index=0,
        rank=job.gang.rank,
        world_size=job.gang.world_size,
        micro_batches=1,
        micro_batch_size=job.config.micro_batch_size,
    )
    pieces = order.pieces(int(positions[0]), len(positions), step=job.gang.world_size)
    rows = np.concatenate([piece.rows for piece in pieces])
    return as_tensors(Digits(job.train_set.pictures_NHW[rows], job.train_set.labels_N[rows]), job.device)


def as_tensors(digits: Digits, device: Device) -> tuple[torch.Tensor, torch.Tensor]:
    """Pictures as float32 from 0 to 1 and labels as int64, on the device."""
    pictures = torch.from_numpy(digits.pictures_NHW.astype("float32") / 255)
    return pictures.to(device.torch_device), torch.from_numpy(digits.labels_N).to(device.torch_device)


def resume(job: Classification, optimizer: torch.optim.Optimizer) -> tuple[Progress, CheckpointFile | None]:
    """Go on from the newest verified checkpoint of this model and seed; rank 0 finds it for all.

    Raises:
        CheckpointInvalid: If there are checkpoints and none can be gone on from.
    """
    if job.graphs_only:
        return Progress(), None
    described = identity(job)

    def misfit(record: Record) -> str | None:
        same = (record.model, record.settings.get("seed")) == (described["model"], described["settings"]["seed"])
        return None if same else "it belongs to another model or --seed"

    job.gang.from_rank0(lambda: require_writable(job.output_dir, option="output_dir"))
    found = job.gang.from_rank0(lambda: checkpoint_files.newest_to_resume(job.output_dir, say=job.say, misfit=misfit))
    if found is None:
        return Progress(), None
    content = torch.load(found.path, map_location="cpu", weights_only=True)
    job.model.load_state_dict(content["model"])
    optimizer.load_state_dict(content["optimizer"])
    record = found.record
    job.say(f"Going on from {found.path.name}, verified, after step {record.step}.")
    return Progress(record.step, record.samples_seen, record.first_loss, record.last_loss), found


def save(job: Classification, progress: Progress, optimizer: torch.optim.Optimizer) -> CheckpointFile:
    """Write a checkpoint, whole or not at all; a model of this size takes milliseconds.

    Raises:
        StorageFailed: If the folder cannot be written.
    """
    state = {"model": on_host(job.model), "optimizer": optimizer.state_dict()}
    try:
        saved = checkpoint_files.write(
            job.output_dir, lambda file: torch.save(state, file), {**vars(progress), **identity(job)}
        )
    except (OSError, RuntimeError) as error:  # torch.save turns some of the file's errors into its own
        raise StorageFailed(
            f"The checkpoint of step {progress.step} could not be written to {job.output_dir} ({error}); "
            "make room or give a folder that can be written."
        ) from error
    checkpoint_files.keep_newest(job.output_dir, job.config.keep_checkpoints, until=progress.step)
    return saved


def identity(job: Classification) -> dict[str, Any]:
    """What a checkpoint has to agree on with the training that goes on from it."""
    shapes = {name: parameter.numel() for name, parameter in job.model.named_parameters()}
    return {"model": shapes, "settings": {"seed": job.config.seed, "optimizer": "sgd"}}


def on_host(model: nn.Module) -> dict[str, torch.Tensor]:
    """The weights in host memory, so that a file of them can be read on any machine."""
    return {name: tensor.cpu() for name, tensor in model.state_dict().items()}


@torch.no_grad()
def accuracy(job: Classification) -> float:
    """Share of the test pictures that the model recognises; each rank looks at its share of them."""
    rank, world_size = job.gang.rank, job.gang.world_size
    mine = Digits(job.test_set.pictures_NHW[rank::world_size], job.test_set.labels_N[rank::world_size])
    pictures, labels = as_tensors(mine, job.device)
    job.model.eval()
    right = (job.model(pictures).argmax(dim=-1) == labels).sum().item()
    job.model.train()
    recognised, seen = job.gang.means([float(right), float(len(mine))])
    return recognised / seen


def result(
    job: Classification, progress: Progress, saved: CheckpointFile | None, sequences_per_second: float
) -> dict[str, Any] | None:
    """What the pod's status says of the training; in the log, the words in which the tutorial ends."""
    if job.graphs_only:
        return None
    share = accuracy(job)
    job.say(f"Final loss is {progress.last_loss:.4f}")
    job.say("----------End Training ---------------")
    if not job.records:
        return None
    return {
        "steps": progress.step,
        "first_loss": progress.first_loss,
        "last_loss": progress.last_loss,
        "accuracy": round(share, 4),
        "sequences_per_second": round(sequences_per_second, 2),
        "checkpoint": str(saved.path) if saved else None,
        "world_size": job.gang.world_size,
    }


def nothing_to_compile(environment: Environment) -> None:
    """What a precompile job has to say of a program that torch.compile is not used in."""
    if environment.speaks_for_the_gang:
        print("Nothing to compile ahead of time: this program runs uncompiled.", flush=True)
        print(*compilation.report(compilation.NONE), sep="\n", flush=True)
