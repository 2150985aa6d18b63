"""The state that learns: the model, its optimizer, and the exchange of gradients between the ranks."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from trainer.compiler import compilation
from trainer.device.distributed import Gang
from trainer.loop.task import TrainingProcess
from trainer.optimizers import gradients
from trainer.optimizers.building import Optimizer
from trainer.optimizers.gradients import Exchange


@dataclass(frozen=True)
class Learner:
    """The objects that change while training."""

    model: nn.Module
    exchange: Exchange
    """Averages the gradients over the ranks."""
    optimizer: Optimizer
    compiled: bool


def build_learner(process: TrainingProcess, gang: Gang) -> Learner:
    """Build the model, its optimizer and, where the device allows it, compiled layers; the same on every rank of the
    gang."""
    task, device = process.task, process.device
    uncompiled_reason = compilation.uncompiled_reason(device, wanted=process.config.compile)
    if uncompiled_reason is None:
        compilation.keep_layers_whole()
    else:
        process.say(f"Training runs uncompiled: {uncompiled_reason}.")
    torch.manual_seed(task.plan.seed)
    model = task.build_model(device, compiler=device.compiler if uncompiled_reason is None else None).train()
    optimizer = task.build_optimizer(model, device, gang)
    exchange = gradients.exchange(model, gang, device, bucket_mib=process.config.bucket_mib)
    return Learner(model, exchange, optimizer, compiled=uncompiled_reason is None)


def take_step(process: TrainingProcess, learner: Learner, rate: float) -> torch.Tensor:
    """Clip the gradients, change the weights, and drop the gradients.

    Returns:
        The 2-norm of the gradients before clipping, still on the device. Every rank computes it, because a graph that
        only rank 0 has would make the other ranks wait for its compilation.
    """
    norm = nn.utils.clip_grad_norm_(learner.model.parameters(), process.task.plan.max_grad_norm)
    for group in learner.optimizer.param_groups:
        group["lr"] = rate
    process.device.take_step(learner.optimizer)
    learner.optimizer.zero_grad()
    return norm
