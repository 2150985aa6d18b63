"""The learning rate of each step."""

from __future__ import annotations

import math

from trainer.optimizers.optimization_config import OptimizationConfig


def learning_rate(step: int, config: OptimizationConfig) -> float:
    """Linear warm-up to the peak, then the configured decay (linear: Devlin et al. 2019, §A.2).

    As in the tutorial, whose scheduler advances after each step: step 1 of a training with a warm-up is taken with a
    rate of 0, and a step after the last one would be, too.

    Args:
        step: The step that uses the rate, counted from 1. The line of a step shows the rate of the next one, as the
            tutorial's does: 2.80e-06 for step 14 of 2,000 towards 4e-4.
        config: Peak, warm-up, decay and the last step.
    """
    taken = step - 1
    if taken < config.warmup_steps:
        return config.learning_rate * taken / config.warmup_steps
    share = min(1.0, (taken - config.warmup_steps) / max(1, config.max_steps - config.warmup_steps))
    if config.schedule == "constant":
        return config.learning_rate
    if config.schedule == "cosine":
        return config.learning_rate * (1 + math.cos(math.pi * share)) / 2
    return config.learning_rate * (1 - share)
