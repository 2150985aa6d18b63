"""The training loop. `train` reads like the algorithm; the rest are functions that it calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import nn

from trainer import checkpoint, checkpoint_files, compilation
from trainer.batches import BatchReader
from trainer.bert import BertPretraining, decay_groups
from trainer.checkpoint import Progress
from trainer.checkpoint_files import CheckpointFile
from trainer.data_order import micro_batch_positions
from trainer.distributed import Gang, accumulating
from trainer.errors import ConfigInvalid, Terminated
from trainer.files import require_writable
from trainer.journal import Journal
from trainer.run import Run
from trainer.schedule import learning_rate
from trainer.stopping import StopRequest

GRAPH_STEPS = 10
"""Steps in which every graph of the training has been seen; the tutorial's `--steps_this_run 10`."""


@dataclass(frozen=True)
class Learner:
    """What changes while training."""

    model: BertPretraining
    replica: nn.Module
    """The model as the gang sees it: its gradients are averaged over the ranks."""
    optimizer: torch.optim.Optimizer
    compiled: bool


def train(run: Run) -> Mapping[str, Any] | None:
    """Pretrain from the newest verified checkpoint to the last step asked for.

    Returns:
        The result, on rank 0; None on the others.

    Raises:
        Terminated: After SIGTERM, once the step is written down.
    """
    run.say(
        f"Data set: {run.dataset.num_samples} samples of {run.dataset.max_seq_length} tokens in "
        f"{len(run.dataset.shards)} shards for {run.gang.world_size} ranks; samples, not shards, are divided."
    )
    reader, learner = open_reader(run), build_learner(run, run.gang)
    progress, saved = resume(run, learner)
    settle(run, learner, reader)
    last_step = last_step_of(run, progress)
    journal = Journal(run, reader.order, progress, last_step=last_step)
    stop = StopRequest.listening()
    for step in range(progress.step + 1, last_step + 1):
        rate = learning_rate(step, run.config.optimization)
        loss = accumulate_gradients(run, learner, reader, progress)
        take_step(run, learner, rate)
        progress = progress.after_step(run.global_batch_size)
        stopping = False
        if journal.tells(step):
            progress, stopping = journal.tell(progress, loss, rate, stop=stop.received)
        if step % run.config.checkpoints.checkpoint_steps == 0 or step == last_step or stopping:
            saved = save(run, learner, progress)
        if stopping:
            journal.close()
            raise Terminated(f"Stopped by SIGTERM after step {step}, which is saved; the same command goes on from it.")
    journal.close()
    return result(run, learner, progress, saved, journal.sequences_per_second) if run.records else None


def accumulate_gradients(run: Run, learner: Learner, reader: BatchReader, progress: Progress) -> torch.Tensor:
    """Add up the gradients of this rank's micro-batches; the last of them averages the sum over the ranks.

    Returns:
        This rank's mean loss, still on the device.
    """
    config = run.config.optimization
    num_micro_batches = config.gradient_accumulation_steps
    mean_loss = torch.zeros((), device=run.device.torch_device)
    for index in range(num_micro_batches):
        number, positions = micro_batch_positions(
            progress.samples_seen,
            index=index,
            rank=run.gang.rank,
            world_size=run.gang.world_size,
            micro_batch_size=config.micro_batch_size,
        )
        batch = reader.micro_batch(positions).to(run.device.torch_device)
        run.device.seed(dropout_seed(config.seed, progress.step, number))
        with accumulating(learner.replica, exchange=index == num_micro_batches - 1):
            with run.device.autocast(run.config.precision):
                loss = learner.replica(batch) / num_micro_batches
            loss.backward()
        mean_loss += loss.detach()
    return mean_loss


def settle(run: Run, learner: Learner, reader: BatchReader) -> None:
    """Exchange one micro-batch's gradients and throw them away.

    After its first exchange DistributedDataParallel lays its buckets out anew, in the order in which gradients
    arrived, and with three ranks or more the last bit of a sum depends on the layout. A training that was interrupted
    would otherwise take one more step in the first layout than one that was not.
    """
    if run.gang.world_size > 1:
        batch = reader.micro_batch(np.arange(run.config.optimization.micro_batch_size))
        with run.device.autocast(run.config.precision):
            loss = learner.replica(batch.to(run.device.torch_device))
        loss.backward()
        learner.optimizer.zero_grad()


def touch_graphs(run: Run) -> None:
    """Put one micro-batch forth and back through the model of a single process: every graph of the training."""
    alone = replace(run, gang=Gang(rank=0, world_size=1, control=None))
    accumulate_gradients(alone, build_learner(alone, alone.gang), open_reader(alone), Progress())


def take_step(run: Run, learner: Learner, rate: float) -> None:
    """Clip once, change the weights, forget the gradients."""
    nn.utils.clip_grad_norm_(learner.model.parameters(), run.config.optimization.max_grad_norm)
    for group in learner.optimizer.param_groups:
        group["lr"] = rate
    run.device.take_step(learner.optimizer)
    learner.optimizer.zero_grad()


def dropout_seed(seed: int, step: int, micro_batch: int) -> int:
    """A seed for one micro-batch of one step: the same whichever rank computes it, and after any restart."""
    return int(np.random.SeedSequence((seed, step, micro_batch)).generate_state(1, np.uint32)[0])


def open_reader(run: Run) -> BatchReader:
    """The stream of samples.

    Raises:
        ConfigInvalid: If the model has fewer positions than the sequences have tokens.
    """
    dataset, positions = run.dataset, run.config.model.max_position_embeddings
    if dataset.max_seq_length > positions:
        raise ConfigInvalid(
            f"--max_position_embeddings is {positions} and the shards hold sequences of {dataset.max_seq_length} "
            "tokens; give at least as many."
        )
    seed, vocab_size = run.config.optimization.seed, run.config.model.vocab_size
    reader = BatchReader(dataset, seed=seed, vocab_size=vocab_size)
    run.gang.from_rank0(lambda: reader.require_readable(0))  # a wrong vocabulary shows at once, and is told once
    return reader


def build_learner(run: Run, gang: Gang) -> Learner:
    """Model, optimizer and, where the device allows it, compiled layers; alike on every rank of the gang."""
    config = run.config
    torch.manual_seed(config.optimization.seed)
    model = BertPretraining(config.model).to(run.device.torch_device).train()
    obstacle = compilation.obstacle(run.device, wanted=config.compile)
    if obstacle is None:
        compilation.keep_layers_whole()
        model.compile_layers()
    else:
        run.say(f"Training runs uncompiled: {obstacle}.")
    optimizer = torch.optim.AdamW(
        decay_groups(model, config.optimization.weight_decay),
        lr=config.optimization.learning_rate,
        fused=run.device.fused_optimizer,
    )
    return Learner(model, gang.replicated(model), optimizer, compiled=obstacle is None)


def resume(run: Run, learner: Learner) -> tuple[Progress, CheckpointFile | None]:
    """Go on from the newest verified checkpoint; rank 0 finds it for all."""
    if run.graphs_only:
        return Progress(), None
    run.gang.from_rank0(lambda: require_writable(run.output_dir, option="output_dir"))
    found = run.gang.from_rank0(lambda: checkpoint_files.newest_verified(run.output_dir, say=run.say))
    if found is None:
        return Progress(), None
    seed = run.config.optimization.seed
    progress = checkpoint.restore(found, learner.model, learner.optimizer, config=run.config.model, seed=seed)
    run.say(f"Going on from {found.path.name}, verified, after step {progress.step}.")
    return progress, found


def last_step_of(run: Run, progress: Progress) -> int:
    """Where this process stops: at the end of the training or after the steps asked of this run."""
    asked = run.config.steps_this_run
    if asked == -1:
        asked = GRAPH_STEPS if run.graphs_only else run.config.optimization.max_steps
    return min(run.config.optimization.max_steps, progress.step + asked)


def save(run: Run, learner: Learner, progress: Progress) -> CheckpointFile | None:
    """Rank 0 writes the checkpoint; the others meet it again in the next step."""
    if not run.records:
        return None
    seed = run.config.optimization.seed
    saved = checkpoint.save(
        run.output_dir, progress, learner.model, learner.optimizer, config=run.config.model, seed=seed
    )
    checkpoint_files.keep_newest(run.output_dir, run.config.checkpoints.keep_checkpoints)
    return saved


def result(
    run: Run, learner: Learner, progress: Progress, saved: CheckpointFile | None, sequences_per_second: float
) -> dict[str, Any]:
    """What the pod's status says of the training."""
    graphs = compilation.counts() if learner.compiled else compilation.NONE
    return {
        "steps": progress.step,
        "first_loss": _finite(progress.first_loss),
        "last_loss": _finite(progress.last_loss),
        "sequences_per_second": round(sequences_per_second, 2),
        "checkpoint": str(saved.path) if saved else None,
        "world_size": run.gang.world_size,
        "compiled": learner.compiled,
        "graphs": graphs.total,
        "cached_graphs": graphs.cached,
    }


def _finite(loss: float) -> float | None:
    """A number that JSON can hold."""
    return round(loss, 4) if math.isfinite(loss) else None
