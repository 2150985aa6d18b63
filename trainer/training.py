"""The training loop. `train` reads like the algorithm; the rest are functions that it calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch

from trainer import compilation, seeds
from trainer.batches import BatchReader
from trainer.checkpoint import Progress
from trainer.data_order import Positions, micro_batch_positions
from trainer.distributed import Gang
from trainer.errors import ConfigInvalid, Terminated
from trainer.journal import Journal
from trainer.learner import Learner, build_learner, take_step
from trainer.run import Run
from trainer.saving import Saver, resume
from trainer.schedule import learning_rate
from trainer.stopping import StopRequest

GRAPH_STEPS = 10
"""Steps in which every graph of the training has been seen; the tutorial's `--steps_this_run 10`."""


def train(run: Run) -> Mapping[str, Any] | None:
    """Pretrain from the newest verified checkpoint to the last step asked for.

    Returns:
        The result, on rank 0; None on the others.

    Raises:
        LossNotFinite: As soon as a logged step shows it; its state is never written down.
        Terminated: After SIGTERM, once the step is written down.
    """
    run.say(
        f"Data set: {run.dataset.num_samples} samples of {run.dataset.max_seq_length} tokens in "
        f"{len(run.dataset.shards)} shards for {run.gang.world_size} ranks; samples, not shards, are divided."
    )
    reader, learner = open_reader(run), build_learner(run, run.gang)
    progress, saved = resume(run, learner)
    settle(run, learner, reader, progress)
    last_step, optimization = last_step_of(run, progress), run.config.optimization
    journal = Journal(run, reader, progress, last_step=last_step)
    stop = StopRequest.listening()
    saver = Saver(run, learner, last_step=last_step)
    with saver.writer:
        for step in range(progress.step + 1, last_step + 1):
            losses = accumulate_gradients(run, learner, reader, progress)
            grad_norm = take_step(run, learner, learning_rate(step, optimization))
            progress = progress.after_step(run.global_batch_size)
            saver.after_step()
            if journal.tells(step) or saver.due(step):
                next_rate = learning_rate(step + 1, optimization)
                progress, wishes = journal.tell(
                    progress, losses, grad_norm, next_rate, stop=stop.received, save=saver.overdue()
                )
                if saver.due(step) or wishes.save or wishes.stop:
                    saver.save(progress)
                if wishes.stop:
                    break
    journal.close()
    if progress.step < last_step:
        raise Terminated(
            f"Stopped by SIGTERM after step {progress.step}, which is saved; the same command goes on from it."
        )
    run.say(journal.summary(saver.writer.stops))
    return result(run, learner, progress, saver, journal, resumed_from=saved) if run.records else None


def accumulate_gradients(run: Run, learner: Learner, reader: BatchReader, progress: Progress) -> torch.Tensor:
    """Add up the gradients of this rank's micro-batches; the last of them averages the sum over the ranks.

    Returns:
        This rank's mean losses, masked LM and next sentence, still on the device.
    """
    config = run.config.optimization
    mean_losses = torch.zeros(2, device=run.device.torch_device)
    for index in range(run.micro_batches):
        number, positions = next_positions(run, progress, index=index)
        batch = reader.micro_batch(positions).to(run.device.torch_device)
        run.device.seed(seeds.derived(config.seed, progress.step, number))  # dropout: whichever rank computes it
        with learner.exchange.accumulating(last=index == run.micro_batches - 1):
            with run.device.autocast(run.config.precision):
                losses = learner.exchange.replica(batch)
                loss = losses.total / run.micro_batches
            loss.backward()
        mean_losses += torch.stack(losses).detach() / run.micro_batches
        run.device.start_queued_work()
    learner.exchange.finish()
    return mean_losses


def next_positions(run: Run, progress: Progress, *, index: int) -> tuple[int, Positions]:
    """The number and the positions of one of this rank's micro-batches in the step to come."""
    return micro_batch_positions(
        progress.samples_seen,
        index=index,
        rank=run.gang.rank,
        world_size=run.gang.world_size,
        micro_batches=run.micro_batches,
        micro_batch_size=run.config.optimization.micro_batch_size,
    )


def settle(run: Run, learner: Learner, reader: BatchReader, progress: Progress) -> None:
    """Exchange the next micro-batch's gradients and throw them away, where the first exchange differs from the others.

    A training that was interrupted would otherwise take one more such step than one that was not.
    """
    if learner.exchange.settles:
        _, positions = next_positions(run, progress, index=0)
        batch = reader.micro_batch(positions)
        with run.device.autocast(run.config.precision):
            loss = learner.exchange.replica(batch.to(run.device.torch_device)).total
        loss.backward()
        learner.optimizer.zero_grad()


def touch_graphs(run: Run) -> None:
    """Put one micro-batch forth and back through the model of a single process: every graph of the training."""
    alone = replace(run, gang=Gang(rank=0, world_size=1, control=None), micro_batches=1)
    accumulate_gradients(alone, build_learner(alone, alone.gang), open_reader(alone), Progress())


def open_reader(run: Run) -> BatchReader:
    """The stream of samples.

    Raises:
        ConfigInvalid: If the model has fewer positions than the sequences have tokens, or the shards are not of the
            sizes asked for.
    """
    dataset, positions = run.dataset, run.config.model.max_position_embeddings
    for option, held in (("seq_len", dataset.max_seq_length), ("max_pred_len", dataset.max_predictions)):
        asked = getattr(run.config, option)
        if asked not in (None, held):
            raise ConfigInvalid(
                f"--{option} is {asked} and the shards hold {held}; leave it out, or give other shards."
            )
    if dataset.max_seq_length > positions:
        raise ConfigInvalid(
            f"--max_position_embeddings is {positions} and the shards hold sequences of {dataset.max_seq_length} "
            "tokens; give at least as many."
        )
    seed, vocab_size = run.config.optimization.seed, run.config.model.vocab_size
    reader = BatchReader(dataset, seed=seed, vocab_size=vocab_size, world_size=run.gang.world_size)
    run.gang.from_rank0(lambda: reader.require_readable(0))  # a wrong vocabulary shows at once, and is told once
    return reader


def last_step_of(run: Run, progress: Progress) -> int:
    """Where this process stops: at the end of the training or after the steps asked of this run."""
    asked = run.config.steps_this_run
    if asked == -1:
        asked = GRAPH_STEPS if run.graphs_only else run.config.optimization.max_steps
    return min(run.config.optimization.max_steps, progress.step + asked)


def result(
    run: Run, learner: Learner, progress: Progress, saver: Saver, journal: Journal, *, resumed_from: Any
) -> dict[str, Any]:
    """What the pod's status says of the training."""
    graphs = compilation.counts() if learner.compiled else compilation.NONE
    saved = saver.writer.newest or resumed_from
    return {
        "steps": progress.step,
        "first_loss": _finite(progress.first_loss),
        "last_loss": _finite(progress.last_loss),
        "sequences_per_second": round(journal.sequences_per_second, 2),
        "checkpoint": str(saved.path) if saved else None,
        "checkpoint_stop_ms": _rounded_ms(saver.writer.stops),
        "world_size": run.gang.world_size,
        "compiled": learner.compiled,
        "graphs": graphs.total,
        "cached_graphs": graphs.cached,
    }


def _finite(loss: float) -> float | None:
    """A number that JSON can hold."""
    return round(loss, 4) if math.isfinite(loss) else None


def _rounded_ms(seconds: list[float]) -> float | None:
    """The median, in milliseconds."""
    return round(1000 * sorted(seconds)[len(seconds) // 2], 2) if seconds else None
