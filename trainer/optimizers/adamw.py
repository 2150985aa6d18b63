"""AdamW (Loshchilov & Hutter 2019, algorithm 2), with ε in the tutorial's place.

ε is added to the root of the second moment before the moment's start is corrected: the form with ε̂ at the end of §2 of
Kingma & Ba 2015, and that of Hugging Face's AdamW, the origin of the tutorial's. In the first steps, while gradients
are small and √(1 - β₂ᵗ) is far below 1, that ε has more effect than the same number after the correction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from trainer.optimizers.low_precision import Float32State, SeedRounding


class AdamW(Float32State):
    """AdamW for every device and precision. It keeps its moments in float32, where torch's takes the dtype of the
    weights."""

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-6,
        weight_decay: float = 0.01,
        seed_rounding: SeedRounding | None = None,
    ) -> None:
        """
        Args:
            params: Parameters, or groups of them.
            lr: Learning rate η.
            betas: Decay of the moments, β₁ and β₂.
            eps: Added to the root of the uncorrected second moment, ε̂.
            weight_decay: λ; a step shrinks the weights by η λ.
            seed_rounding: Called before bfloat16 weights are rounded here; None where the device rounds by itself.
        """
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, seed_rounding=seed_rounding)

    def _scalars(self, group: dict[str, Any]) -> Sequence[float]:
        rate, (beta1, beta2), step = group["lr"], group["betas"], group["step"]
        shrinking = 1 - rate * group["weight_decay"]
        step_size = rate * math.sqrt(1 - beta2**step) / (1 - beta1**step)
        return shrinking, step_size

    def _changed(
        self,
        weights: torch.Tensor,
        moment: torch.Tensor,
        second_moment: torch.Tensor,
        group: dict[str, Any],
        scalars: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        shrinking, step_size = scalars
        root = second_moment.sqrt().add_(group["eps"])
        changed: torch.Tensor = (weights * shrinking).sub_((moment * step_size).div_(root))
        return changed


class FusedAdamW(torch.optim.AdamW):
    """AdamW for float32 weights, for devices with a torch kernel for the whole step.

    That kernel adds its ε to √(v / (1 - β₂ᵗ)); ε̂ / √(1 - β₂ᵗ) there is ε̂ beside √v.
    """

    def __init__(
        self, groups: Sequence[Mapping[str, Any]], *, lr: float, betas: tuple[float, float], eps: float
    ) -> None:
        """
        Args:
            groups: Parameters with the settings that they share.
            lr: Learning rate η.
            betas: Decay of the moments, β₁ and β₂.
            eps: Added to the root of the uncorrected second moment, ε̂.
        """
        own = [{**group, "step": 0, "eps_before_correction": eps} for group in groups]
        super().__init__(own, lr=lr, betas=betas, fused=True)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change the weights by one step."""
        for group in self.param_groups:
            group["step"] += 1
            group["eps"] = group["eps_before_correction"] / math.sqrt(1 - group["betas"][1] ** group["step"])
        super().step(closure)
