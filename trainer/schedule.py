"""The learning rate of each step."""

from __future__ import annotations

from trainer.config import OptimizationConfig


def learning_rate(step: int, config: OptimizationConfig) -> float:
    """Linear warm-up to the peak, then linear decay to zero (Devlin et al. 2019, §A.2).

    Args:
        step: The step it is used in, from 1; the tutorial's log prints step 14 of 2,000 as 2.80e-06 of 4e-4.
        config: Peak, warm-up and the step at which the rate reaches zero.
    """
    if step <= config.warmup_steps:
        return config.learning_rate * step / config.warmup_steps
    remaining = max(0, config.max_steps - step)
    return config.learning_rate * remaining / max(1, config.max_steps - config.warmup_steps)
