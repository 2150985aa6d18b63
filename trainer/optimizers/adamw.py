"""AdamW for weights in bfloat16 (Loshchilov & Hutter 2019, algorithm 2); torch's own serves float32 weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from trainer.optimizers.low_precision import Float32State


class AdamW(Float32State):
    """Keeps its moments in float32, where torch's takes the dtype of the weights."""

    def __init__(
        self,
        params: Iterable[Any],
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
        round_stochastically: bool = True,
    ) -> None:
        """
        Args:
            params: Parameters, or groups of them.
            lr: Learning rate η.
            betas: Decay of the moments, β₁ and β₂.
            eps: Added to the root of the second moment, ε.
            weight_decay: λ; a step shrinks the weights by η λ.
            round_stochastically: Round bfloat16 weights here; False where the device does it by itself.
        """
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super().__init__(params, defaults, round_stochastically=round_stochastically)

    def _changed(
        self, weights: torch.Tensor, moment: torch.Tensor, root: torch.Tensor, group: dict[str, Any]
    ) -> torch.Tensor:
        rate, (beta1, _) = group["lr"], group["betas"]
        decayed: torch.Tensor = weights * (1 - rate * group["weight_decay"])
        return decayed.addcdiv_(moment, root, value=-rate / (1 - beta1 ** group["step"]))
