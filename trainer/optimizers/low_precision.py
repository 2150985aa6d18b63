"""Weights in bfloat16, changed by updates that are computed in float32.

A bfloat16 number has 8 bits of precision, and an update is often smaller than half of the last of them: rounded to
the nearest number it would vanish, step after step. Rounded stochastically, up or down with the probability that makes
the mean exact, it counts (Gupta et al. 2015, §3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch

_DROPPED_BITS = 16
"""Of a float32's 23 fraction bits, those that bfloat16 has not."""


class Float32State(torch.optim.Optimizer):
    """Adam's moments in at least float32, whatever the weights are in; subclasses say what they make of them."""

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any], *, round_stochastically: bool) -> None:
        """
        Args:
            params: Parameters, or groups of them.
            defaults: Of the groups: `betas` (decay of the moments, β₁ and β₂), `eps` (ε), and the subclass's own.
            round_stochastically: Round bfloat16 weights here; False where the device does it by itself.
        """
        super().__init__(params, {**defaults, "step": 0})
        self._round = round_stochastically

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change the weights by one step."""
        for group in self.param_groups:
            group["step"] += 1
            for parameter in group["params"]:
                if parameter.grad is not None:
                    self._change(parameter, group)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As torch does it, but without rounding the state to the dtype of the weights."""
        super().load_state_dict(state_dict)
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for place, values in state_dict["state"].items():
            device = parameters[place].device
            self.state[parameters[place]] = {name: value.to(device, copy=True) for name, value in values.items()}

    def _change(self, parameter: torch.Tensor, group: dict[str, Any]) -> None:
        """Change one parameter by the settings of its group."""
        gradient = parameter.grad.to(state_dtype(parameter))  # type: ignore[union-attr]
        moment, second_moment = self._moments(parameter)
        (beta1, beta2), step = group["betas"], group["step"]

        moment.lerp_(gradient, 1 - beta1)
        second_moment.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        root = (second_moment / (1 - beta2**step)).sqrt_().add_(group["eps"])
        weights = self._changed(parameter.to(gradient.dtype), moment, root, group)
        store(parameter, weights, stochastically=self._round)

    def _changed(
        self, weights: torch.Tensor, moment: torch.Tensor, root: torch.Tensor, group: dict[str, Any]
    ) -> torch.Tensor:
        """The weights after the step.

        Args:
            weights: Before it, at least float32; the parameter itself where it is that already, so not to be changed.
            moment: Mean of the gradient, without the correction of its start by 1 - β₁ᵗ.
            root: √(corrected second moment) + ε.
            group: Settings of the parameter's group.
        """
        raise NotImplementedError

    def _moments(self, parameter: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Running means of the parameter's gradient and of its square."""
        state = self.state[parameter]
        if not state:
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=state_dtype(parameter))
        return state["exp_avg"], state["exp_avg_sq"]


def state_dtype(parameter: torch.Tensor) -> torch.dtype:
    """What a parameter's state and update are computed in: at least float32."""
    return torch.promote_types(parameter.dtype, torch.float32)


def store(parameter: torch.Tensor, value: torch.Tensor, *, stochastically: bool) -> None:
    """Put a float32 value into a parameter.

    Args:
        parameter: bfloat16, or at least float32.
        value: What it shall become.
        stochastically: Round here; False where the device does it whenever it writes bfloat16.
    """
    if stochastically and parameter.dtype is torch.bfloat16:
        value = rounded_stochastically(value)
    parameter.copy_(value)


def rounded_stochastically(value: torch.Tensor) -> torch.Tensor:
    """float32 values that bfloat16 can hold, each the neighbour above or below; the mean over many draws is exact.

    Draws from torch's generator: the same on every rank if all seed it alike before.
    """
    noise = torch.randint_like(value, 1 << _DROPPED_BITS, dtype=torch.int32)
    bits = value.view(torch.int32) + noise
    return (bits >> _DROPPED_BITS << _DROPPED_BITS).view(torch.float32)
