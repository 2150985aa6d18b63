"""The training loop. `train` reads like the algorithm; the rest are functions that it calls."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from trainer.checkpoints.checkpoint import Progress
from trainer.compiler import compilation
from trainer.data.data_order import Positions, micro_batch_positions
from trainer.device.distributed import Gang
from trainer.loop.learner import Learner, build_learner, take_step
from trainer.loop.progress_log import ProgressLog
from trainer.loop.saving import Saver, resume
from trainer.loop.task import Batch, Batches, TrainingProcess
from trainer.runtime import seeds
from trainer.runtime.errors import Terminated
from trainer.runtime.stopping import StopRequest

GRAPH_STEPS = 10
"""Number of steps that record every graph of the training; the tutorial's `--steps_this_run 10`."""


def train(process: TrainingProcess) -> Mapping[str, Any] | None:
    """Train from the newest verified checkpoint to the last step of this process.

    Returns:
        The result, on rank 0; None on the others.

    Raises:
        LossNotFinite: As soon as a logged step has such a loss; its state is never saved.
        Terminated: After SIGTERM, once the step is saved.
    """
    task = process.task
    batches, learner = task.open_batches(process.gang), build_learner(process, process.gang)
    progress, saved = resume(process, learner)
    warm_up_reducer(process, learner, batches, progress)
    last_step = final_step(process, progress)
    progress_log = ProgressLog(process, batches, progress, last_step=last_step)
    stop = StopRequest.listening()
    saver = Saver(process, learner, last_step=last_step, resumed_from=saved)
    with saver.copies, saver.writer:
        for step in range(progress.step + 1, last_step + 1):
            losses = accumulate_gradients(process, learner, batches, progress)
            grad_norm = take_step(process, learner, task.learning_rate(step))
            progress = progress.after_step(process.global_batch_size)
            saver.after_step()
            if progress_log.logs(step) or saver.due(step):
                progress, decision = progress_log.write(
                    progress, losses, grad_norm, task.learning_rate(step + 1), stop=stop.received, save=saver.overdue()
                )
                if saver.due(step) or decision.save or decision.stop:
                    saver.save(progress)
                if decision.stop:
                    break
    progress_log.close()
    if progress.step < last_step:
        raise Terminated(
            f"Stopped by SIGTERM after step {progress.step}, which is saved; the same command goes on from it."
        )
    process.say(progress_log.summary(saver.writer.stops))
    concluded = {} if process.graphs_only else task.conclude(learner.model, process, last_loss=progress.last_loss)
    if not process.records:
        return None
    return {**result(process, learner, progress, saver, progress_log, resumed_from=saved), **concluded}


def accumulate_gradients(
    process: TrainingProcess, learner: Learner, batches: Batches, progress: Progress
) -> torch.Tensor:
    """Sum the gradients of this rank's micro-batches; after the last one, average the sum over the ranks.

    Returns:
        This rank's mean of each of the task's losses, still on the device.
    """
    plan = process.task.plan
    mean_losses = torch.zeros(len(process.task.losses), device=process.device.torch_device)
    for index in range(plan.micro_batches):
        number, positions = next_positions(process, progress, index=index)
        batch = batches.micro_batch(positions).on(process.device)
        process.device.seed(seeds.derived(plan.seed, progress.step, number))  # the same dropout on any rank
        with learner.exchange.accumulating(last=index == plan.micro_batches - 1):
            with process.device.autocast(plan.precision):
                losses = learner.exchange.replica(batch)
                loss = sum(losses) / plan.micro_batches
            loss.backward()
        mean_losses += torch.stack(losses).detach() / plan.micro_batches
        process.device.start_queued_work()
    learner.exchange.finish()
    return mean_losses


def next_positions(process: TrainingProcess, progress: Progress, *, index: int) -> tuple[int, Positions]:
    """The number and the positions of one of this rank's micro-batches in the next step."""
    return micro_batch_positions(
        progress.samples_seen,
        index=index,
        rank=process.gang.rank,
        world_size=process.gang.world_size,
        micro_batches=process.task.plan.micro_batches,
        micro_batch_size=process.task.plan.micro_batch_size,
    )


def warm_up_reducer(process: TrainingProcess, learner: Learner, batches: Batches, progress: Progress) -> None:
    """Average the next micro-batch's gradients once and drop them, where the first average differs from the others.

    A process that resumes a training would otherwise take one step with the first average, and its losses would differ
    in the last bit from those of a training without an interruption.
    """
    if learner.exchange.needs_warm_up:
        _, positions = next_positions(process, progress, index=0)
        _forward_and_backward(process, learner.exchange.replica, batches.micro_batch(positions))
        learner.optimizer.zero_grad()


def touch_graphs(process: TrainingProcess) -> None:
    """Run one micro-batch forward and backward through the model in a single process, which records every graph."""
    alone = Gang(rank=0, world_size=1, control=None)
    learner, batches = build_learner(process, alone), process.task.open_batches(alone)
    _forward_and_backward(process, learner.model, batches.micro_batch(np.arange(process.task.plan.micro_batch_size)))


def _forward_and_backward(process: TrainingProcess, model: nn.Module, batch: Batch) -> None:
    """Compute the gradients of one micro-batch; they are not used."""
    with process.device.autocast(process.task.plan.precision):
        loss = sum(model(batch.on(process.device)))
    loss.backward()


def final_step(process: TrainingProcess, progress: Progress) -> int:
    """The last step of this process: the end of the training, or as many steps as `--steps_this_run` allows."""
    asked, max_steps = process.config.steps_this_run, process.task.plan.max_steps
    if asked == -1:
        asked = GRAPH_STEPS if process.graphs_only else max_steps
    return min(max_steps, progress.step + asked)


def result(
    process: TrainingProcess,
    learner: Learner,
    progress: Progress,
    saver: Saver,
    progress_log: ProgressLog,
    *,
    resumed_from: Any,
) -> dict[str, Any]:
    """The fields of the result in the pod's status."""
    graphs = compilation.counts() if learner.compiled else compilation.NONE
    saved = saver.newest or resumed_from
    return {
        "steps": progress.step,
        "first_loss": _finite(progress.first_loss),
        "last_loss": _finite(progress.last_loss),
        "sequences_per_second": round(progress_log.samples_per_second, 2),
        "checkpoint": str(saved.path) if saved else None,
        "checkpoint_stop_ms": _rounded_ms(saver.writer.stops),
        "world_size": process.gang.world_size,
        "compiled": learner.compiled,
        "graphs": graphs.total,
        "cached_graphs": graphs.cached,
    }


def _finite(loss: float) -> float | None:
    """A rounded number, or None for one that JSON cannot hold."""
    return round(loss, 4) if math.isfinite(loss) else None


def _rounded_ms(seconds: list[float]) -> float | None:
    """The median, in milliseconds; None without values."""
    return round(1000 * sorted(seconds)[len(seconds) // 2], 2) if seconds else None
