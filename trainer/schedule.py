"""The learning rate of each step."""

from __future__ import annotations

from trainer.config import OptimizationConfig


def learning_rate(step: int, config: OptimizationConfig) -> float:
    """Linear warm-up to the peak, then linear decay (Devlin et al. 2019, §A.2) to zero right after the last step.

    Args:
        step: The step it is used in, from 1; the tutorial's log prints step 14 of 2,000 as 2.80e-06 of 4e-4.
        config: Peak, warm-up and the last step.
    """
    if step <= config.warmup_steps:
        return config.learning_rate * (step / config.warmup_steps)
    behind_last = config.max_steps + 1
    return config.learning_rate * max(0, behind_last - step) / max(1, behind_last - config.warmup_steps)
