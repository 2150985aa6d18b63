"""LAMB (You et al. 2020, "Large Batch Optimization for Deep Learning", algorithm 2), for very large batches."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from trainer.optimizers.low_precision import Float32State, SeedRounding


class Lamb(Float32State):
    """Adam with the step of each layer scaled to the norm of the layer's weights, times the learning rate.

    As in the tutorial's implementation (timm's), layers that are not decayed take Adam's step as it is, and the ratio
    of weights to step is clipped at 1 by default. The caller of `step` clips the gradients before. State
    is float32, also for bfloat16 weights. Nothing is read from the device.
    """

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        trust_clip: bool = True,
        seed_rounding: SeedRounding | None = None,
    ) -> None:
        """
        Args:
            params: Parameters, or groups of them.
            lr: Learning rate η.
            betas: Decay of the moments, β₁ and β₂.
            eps: Added to the root of the corrected second moment, ε.
            weight_decay: λ.
            trust_clip: Never lengthen a layer's step: φ(‖x‖) / ‖r + λx‖ ≤ 1.
            seed_rounding: Called before bfloat16 weights are rounded here; None where the device rounds by itself.
        """
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "trust_clip": trust_clip}
        super().__init__(params, defaults, seed_rounding=seed_rounding)

    def _scalars(self, group: dict[str, Any]) -> Sequence[float]:
        (beta1, beta2), step = group["betas"], group["step"]
        return group["lr"], 1 - beta1**step, 1 - beta2**step

    def _changed(
        self,
        weights: torch.Tensor,
        moment: torch.Tensor,
        second_moment: torch.Tensor,
        group: dict[str, Any],
        scalars: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        rate, correction, second_correction = scalars
        decay = group["weight_decay"]
        root = (second_moment / second_correction).sqrt_().add_(group["eps"])
        update = (moment / correction).div_(root)
        if decay:
            update.add_(weights, alpha=decay)
            update.mul_(_trust_ratio(weights, update, clip=group["trust_clip"]))
        changed: torch.Tensor = weights - rate * update
        return changed


def _trust_ratio(weights: torch.Tensor, update: torch.Tensor, *, clip: bool) -> torch.Tensor:
    """‖x‖ / ‖r + λx‖ as a scalar on the device; 1 where one of them is zero."""
    length, step_length = weights.norm(), update.norm()
    ratio = torch.where((length > 0) & (step_length > 0), length / step_length, 1.0)
    return ratio.clamp(max=1.0) if clip else ratio
