"""AdamW for weights in bfloat16 (Loshchilov & Hutter 2019, algorithm 2); torch's own serves float32 weights."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from trainer.optimizers.low_precision import Float32State, state_dtype, store


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
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay, "step": 0})
        self._round = round_stochastically

    def _change(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        dtype = state_dtype(parameter)
        moment, second_moment = self._moments(parameter)
        gradient = parameter.grad.to(dtype)  # type: ignore[union-attr]
        (beta1, beta2), step, rate = group["betas"], group["step"], group["lr"]

        moment.lerp_(gradient, 1 - beta1)
        second_moment.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (second_moment / (1 - beta2**step)).sqrt_().add_(group["eps"])
        weights = parameter.to(dtype) * (1 - rate * group["weight_decay"])
        weights.addcdiv_(moment, root, value=-rate / (1 - beta1**step))
        store(parameter, weights, stochastically=self._round)
