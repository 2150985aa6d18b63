"""Weights in bfloat16, changed by updates that are computed in float32.

A bfloat16 number has 8 bits of precision, and an update is often smaller than half of the last of them: rounded to
the nearest number it would vanish, step after step. Rounded stochastically, up or down with the probability that makes
the mean exact, it counts (Gupta et al. 2015, §3.1).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

SeedRounding = Callable[[torch.Tensor, int], None]
"""Seeds the device's generator for the rounding of one parameter in one step, counted from 1."""

_DROPPED_BITS = 16
"""Number of a float32's 23 fraction bits that bfloat16 lacks."""


class Float32State(torch.optim.Optimizer):
    """Adam's moments in at least float32, whatever the dtype of the weights; subclasses compute the update from them.

    What changes from step to step (learning rate, corrections of the moments) reaches the device as a tensor: a device
    that traces its work would make a Python number part of the program, and compile another program for each.
    """

    def __init__(self, params: Iterable[Any], defaults: dict[str, Any], *, seed_rounding: SeedRounding | None) -> None:
        """
        Args:
            params: Parameters, or groups of them.
            defaults: Of the groups: `betas` (decay of the moments, β₁ and β₂), `eps` (ε), and the subclass's own.
            seed_rounding: Called before bfloat16 weights are rounded here; None where the device rounds by itself.
        """
        super().__init__(params, {**defaults, "step": 0})
        self._seed_rounding = seed_rounding

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """Change the weights by one step."""
        for group in self.param_groups:
            group["step"] += 1
            parameters = [parameter for parameter in group["params"] if parameter.grad is not None]
            if parameters:
                scalars = on_device(self._scalars(group), parameters[0])
                for parameter in parameters:
                    self._change(parameter, group, scalars)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Load a state as torch does, but without rounding it to the dtype of the weights."""
        super().load_state_dict(state_dict)
        parameters = [parameter for group in self.param_groups for parameter in group["params"]]
        for place, values in state_dict["state"].items():
            device = parameters[place].device
            self.state[parameters[place]] = {name: value.to(device, copy=True) for name, value in values.items()}

    def _change(self, parameter: torch.Tensor, group: dict[str, Any], scalars: Sequence[torch.Tensor]) -> None:
        """Change one parameter by the settings of its group."""
        gradient = parameter.grad.to(state_dtype(parameter))  # type: ignore[union-attr]
        moment, second_moment = self._moments(parameter)
        beta1, beta2 = group["betas"]
        moment.lerp_(gradient, 1 - beta1)
        second_moment.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
        weights = self._changed(parameter.to(gradient.dtype), moment, second_moment, group, scalars)
        if parameter.dtype is torch.bfloat16 and self._seed_rounding is not None:
            self._seed_rounding(parameter, group["step"])
            weights = rounded_stochastically(weights)
        parameter.copy_(weights)

    def _scalars(self, group: dict[str, Any]) -> Sequence[float]:
        """The numbers of this step that the group's parameters share; their count is always the same."""
        raise NotImplementedError

    def _changed(
        self,
        weights: torch.Tensor,
        moment: torch.Tensor,
        second_moment: torch.Tensor,
        group: dict[str, Any],
        scalars: Sequence[torch.Tensor],
    ) -> torch.Tensor:
        """Compute the weights after the step.

        Args:
            weights: The weights before the step, at least float32. They may be the parameter itself, so they must not
                be changed.
            moment: Running mean of the gradient, from 0, without a correction of its start. Not to be changed.
            second_moment: The same of the gradient's square.
            group: Settings of the parameter's group.
            scalars: This step's numbers, as `_scalars` gave them, on the device.
        """
        raise NotImplementedError

    def _moments(self, parameter: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Running means of the parameter's gradient and of its square."""
        state = self.state[parameter]
        if not state:
            for name in ("exp_avg", "exp_avg_sq"):
                state[name] = torch.zeros_like(parameter, dtype=state_dtype(parameter))
        return state["exp_avg"], state["exp_avg_sq"]


def on_device(numbers: Sequence[float], like: torch.Tensor) -> Sequence[torch.Tensor]:
    """Numbers as scalars beside a parameter, in the dtype that its updates are computed in; one transfer for all."""
    return torch.tensor(numbers, dtype=state_dtype(like)).to(like.device).unbind()


def state_dtype(parameter: torch.Tensor) -> torch.dtype:
    """Type for a parameter's state and update: at least float32."""
    return torch.promote_types(parameter.dtype, torch.float32)


def rounded_stochastically(value: torch.Tensor) -> torch.Tensor:
    """float32 values that bfloat16 can hold, each the neighbour above or below; the mean over many draws is exact.

    Draws from torch's generator: the same on every rank if all seed it alike before.
    """
    noise = torch.randint_like(value, 1 << _DROPPED_BITS, dtype=torch.int32)
    bits = value.view(torch.int32) + noise
    return (bits >> _DROPPED_BITS << _DROPPED_BITS).view(torch.float32)
