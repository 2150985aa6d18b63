"""How gradients change the weights."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from trainer.config import OptimizationConfig
from trainer.device import Device
from trainer.distributed import Gang
from trainer.optimizers.adamw import AdamW
from trainer.optimizers.lamb import Lamb
from trainer.optimizers.zero import ShardedOptimizer

Groups = Sequence[Mapping[str, Any]]
"""Parameters with the settings that they share, as torch's optimizers take them."""


class Optimizer(Protocol):
    """What the training asks of an optimizer; torch's own fulfil it."""

    param_groups: list[dict[str, Any]]

    def step(self) -> Any:
        """Change the weights by the gradients."""

    def zero_grad(self) -> None:
        """Forget the gradients."""

    def state_dict(self) -> dict[str, Any]:
        """The state, by the parameters' places in the groups."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take the state of another optimizer of the same kind over."""


def build(groups: Groups, config: OptimizationConfig, device: Device, gang: Gang) -> Optimizer:
    """The optimizer that was asked for, its state divided between the ranks if that was asked for too."""
    pure_bfloat16 = any(parameter.dtype is torch.bfloat16 for group in groups for parameter in group["params"])
    make = _maker(config, device, pure_bfloat16=pure_bfloat16)
    if config.zero1 and gang.world_size > 1:
        return ShardedOptimizer(groups, make, gang)
    return make(groups)


def decay_groups(model: nn.Module, weight_decay: float) -> Groups:
    """The model's parameters: biases and layer norms are not decayed (Devlin et al. 2019's own code)."""
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (kept if name.endswith("bias") or "LayerNorm" in name else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]


def _maker(
    config: OptimizationConfig, device: Device, *, pure_bfloat16: bool
) -> Callable[[Groups], torch.optim.Optimizer]:
    def make(groups: Groups) -> torch.optim.Optimizer:
        own = [dict(group) for group in groups]  # torch writes its settings into them
        rate, rounding = config.learning_rate, not device.rounds_stochastically
        if config.optimizer == "lamb":
            return Lamb(own, lr=rate, trust_clip=config.trust_clip, round_stochastically=rounding)
        if pure_bfloat16:
            return AdamW(own, lr=rate, round_stochastically=rounding)
        return torch.optim.AdamW(own, lr=rate, fused=device.fused_optimizer)

    return make
