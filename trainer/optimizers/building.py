"""Builds the optimizer of a training, and defines the interface that the training uses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import nn

from trainer.device import Device
from trainer.device.distributed import Gang
from trainer.optimizers.adamw import AdamW, FusedAdamW
from trainer.optimizers.lamb import Lamb
from trainer.optimizers.low_precision import SeedRounding
from trainer.optimizers.optimization_config import OptimizationConfig
from trainer.optimizers.zero import ShardedOptimizer
from trainer.runtime import seeds
from trainer.runtime.errors import ConfigInvalid

Groups = Sequence[Mapping[str, Any]]
"""Parameters with the settings that they share, as torch's optimizers take them."""


class Optimizer(Protocol):
    """The interface of an optimizer that the training uses; torch's own optimizers have it."""

    param_groups: list[dict[str, Any]]

    def step(self) -> Any:
        """Change the weights by the gradients."""

    def zero_grad(self) -> None:
        """Drop the gradients."""

    def state_dict(self) -> dict[str, Any]:
        """The state, by the numbers of the parameters in the groups."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load the state of another optimizer of the same kind."""


def build(groups: Groups, config: OptimizationConfig, device: Device, gang: Gang) -> Optimizer:
    """Build the configured optimizer, with its state divided between the ranks if `zero1` is set.

    Raises:
        ConfigInvalid: If `zero1` is set on a device where every rank has to execute the same graph.
    """
    if config.zero1 and device.average is not None:
        raise ConfigInvalid(
            "--zero1 is true, which --device xla cannot do: each rank would trace a step of its own parameters, and "
            "ranks with different graphs wait for each other forever; leave --zero1 out."
        )
    pure_bfloat16 = any(parameter.dtype is torch.bfloat16 for group in groups for parameter in group["params"])
    seed_rounding = None if device.rounds_stochastically else _rounding_seeds(groups, config, device)
    make = _maker(config, fused=device.fused_optimizer and not pure_bfloat16, seed_rounding=seed_rounding)
    if config.zero1 and gang.world_size > 1:
        return ShardedOptimizer(groups, make, gang)
    return make(groups)


def decay_groups(model: nn.Module, weight_decay: float) -> Groups:
    """The model's parameters in groups: biases and layer norms are not decayed (Devlin et al. 2019's own code)."""
    decayed: list[nn.Parameter] = []
    kept: list[nn.Parameter] = []
    for name, parameter in model.named_parameters():
        (kept if name.endswith("bias") or "LayerNorm" in name else decayed).append(parameter)
    return [{"params": decayed, "weight_decay": weight_decay}, {"params": kept, "weight_decay": 0.0}]


def _maker(
    config: OptimizationConfig, *, fused: bool, seed_rounding: SeedRounding | None
) -> Callable[[Groups], torch.optim.Optimizer]:
    rate, betas, eps = config.learning_rate, (config.beta1, config.beta2), config.eps

    def make(groups: Groups) -> torch.optim.Optimizer:
        own = [dict(group) for group in groups]  # torch writes its settings into them
        if config.optimizer == "lamb":
            return Lamb(own, lr=rate, betas=betas, eps=eps, trust_clip=config.trust_clip, seed_rounding=seed_rounding)
        if fused:
            return FusedAdamW(own, lr=rate, betas=betas, eps=eps)
        return AdamW(own, lr=rate, betas=betas, eps=eps, seed_rounding=seed_rounding)

    return make


def _rounding_seeds(groups: Groups, config: OptimizationConfig, device: Device) -> SeedRounding:
    """Seed the rounding by the parameter's number among all, so that it is rounded in the same way on any rank."""
    places = {
        parameter: place
        for place, parameter in enumerate(parameter for group in groups for parameter in group["params"])
    }

    def seed(parameter: torch.Tensor, step: int) -> None:
        device.seed(seeds.derived(config.seed, step, seeds.ROUNDING, places[parameter]))

    return seed
