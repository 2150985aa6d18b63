"""Effect of the number of processes on a step: strong scaling keeps the global batch, weak scaling lets it grow."""

from __future__ import annotations

from trainer.optimizers.optimization_config import OptimizationConfig
from trainer.runtime.errors import ConfigInvalid


def micro_batches_per_step(config: OptimizationConfig, *, world_size: int, local_world_size: int) -> int:
    """Number of micro-batches of one process in one step.

    Args:
        config: The settings of the training.
        world_size: Processes of the gang.
        local_world_size: Processes of one node, whose batch strong scaling keeps unless a global batch is given.

    Raises:
        ConfigInvalid: If the global batch cannot be divided into equal parts.
    """
    if config.scaling == "weak":
        return config.gradient_accumulation_steps
    at_once = config.micro_batch_size * world_size
    of_one_node = config.micro_batch_size * config.gradient_accumulation_steps * local_world_size
    global_batch_size = config.global_batch_size or of_one_node
    if global_batch_size % at_once:
        raise ConfigInvalid(
            f"--global_batch_size is {global_batch_size}, which {world_size} processes with micro-batches of "
            f"{config.micro_batch_size} ({at_once} sequences at once) cannot divide evenly; change it, "
            "--micro_batch_size or the number of nodes, or give --scaling weak."
        )
    return global_batch_size // at_once
