"""The number of steps of a training, from the words that its program is given."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

LAST_STEP = (
    "max_steps",  # Trainflow's programs, transformers, Lightning
    "max_train_steps",  # the examples of accelerate and diffusers
    "num_train_steps",
    "train_steps",
    "num_steps",
    "total_steps",
    "steps",
    "training.steps",  # torchtitan
    "train_iters",  # Megatron-LM
    "max_iters",  # nanoGPT
    "iterations",
)
"""Flags of programs for the last step of the whole training."""


def total_steps(spec: Mapping[str, Any], first_step: int | None) -> int | None:
    """Last step of the training, from the workload's arguments; None if they do not contain it.

    A flag of `LAST_STEP` ends the whole training, `steps_this_run` this run's part of it, counted from its first step.
    """
    workload = spec.get("workload")
    arguments = workload.get("arguments") if isinstance(workload, Mapping) else None
    if not isinstance(arguments, Mapping):
        return None
    given = {str(name).replace("-", "_"): value for name, value in arguments.items()}
    ends = [_count(given.get(name), 0) for name in LAST_STEP]
    ends.append(_count(given.get("steps_this_run"), max(0, (first_step or 1) - 1)))
    return min((end for end in ends if end is not None), default=None)


def _count(value: Any, offset: int) -> int | None:
    try:
        steps = int(value)
    except (TypeError, ValueError):
        return None
    return steps + offset if steps > 0 else None
