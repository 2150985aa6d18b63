"""What learns: model, optimizer, and how gradients come from one and change it through the other."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from trainer import compilation, gradients, optimizers
from trainer.bert import BertPretraining
from trainer.distributed import Gang
from trainer.fingerprint import PURE_BFLOAT16
from trainer.gradients import Exchange
from trainer.optimizers import Optimizer, decay_groups
from trainer.run import Run


@dataclass(frozen=True)
class Learner:
    """What changes while training."""

    model: BertPretraining
    exchange: Exchange
    """How its gradients are averaged over the ranks."""
    optimizer: Optimizer
    compiled: bool


def build_learner(run: Run, gang: Gang) -> Learner:
    """Model, optimizer and, where the device allows it, compiled layers; alike on every rank of the gang."""
    config, device = run.config, run.device
    torch.manual_seed(config.optimization.seed)
    dtype = torch.bfloat16 if config.precision == PURE_BFLOAT16 else torch.float32
    model = BertPretraining(config.model).to(dtype).to(device.torch_device).train()  # rounded here, not on the device
    model.model.tie_weights()
    obstacle = compilation.obstacle(device, wanted=config.compile)
    if obstacle is None and device.compiler is not None:
        compilation.keep_layers_whole()
        model.compile_layers(device.compiler)
    else:
        run.say(f"Training runs uncompiled: {obstacle}.")
    groups = decay_groups(model, config.optimization.weight_decay)
    optimizer = optimizers.build(groups, config.optimization, device, gang)
    exchange = gradients.exchange(model, gang, device, bucket_mib=config.optimization.bucket_mib)
    return Learner(model, exchange, optimizer, compiled=obstacle is None)


def take_step(run: Run, learner: Learner, rate: float) -> torch.Tensor:
    """Clip once, change the weights, forget the gradients.

    Returns:
        The 2-norm of the gradients before clipping, still on the device; the same on every rank, as all of them
        compute it: a graph that only rank 0 has would make the others wait for its compilation.
    """
    config = run.config.optimization
    norm = nn.utils.clip_grad_norm_(learner.model.parameters(), config.max_grad_norm)
    for group in learner.optimizer.param_groups:
        group["lr"] = rate
    run.device.take_step(learner.optimizer)
    learner.optimizer.zero_grad()
    return norm
