"""Check the arguments of one of the trainer's programs: `python -m trainer.argument_check --module trainer.pretrain --
--max_steps 100`.

The probe runs this where the image holds the trainer. It needs no torch. Wrong arguments are its result and no error.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trainer import pretrain
from trainer.loop.scaling import micro_batches_per_step
from trainer.pretraining.config import ModelShape, PretrainConfig
from trainer.runtime import arguments, program
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid

FLOAT32 = 4
MOMENTS = 2
"""Moments that AdamW and LAMB keep, in float32 whatever the precision of the weights."""


@dataclass(frozen=True, kw_only=True)
class CheckConfig:
    """The program and its gang; its own arguments follow after `--`."""

    module: str
    """Python module, as after `python -m`."""
    world_size: int = 1
    """Processes of the gang."""
    processes_per_node: int = 1
    """Processes of the gang on each node."""


def main(argv: Sequence[str], _environment: Environment) -> Mapping[str, Any]:
    """The fault in the arguments, and the space that the program's checkpoints take in bytes; None where unknown."""
    own, given = arguments.divided(argv)
    config = arguments.parse(CheckConfig, own, program="trainer.argument_check")
    check = CHECKS.get(config.module)
    if check is None:
        return {"arguments": None, "checkpoint_bytes": None}
    try:
        return {"arguments": None, "checkpoint_bytes": check(config, given)}
    except ConfigInvalid as error:
        return {"arguments": str(error), "checkpoint_bytes": None}


def _pretrain(config: CheckConfig, given: Sequence[str]) -> int:
    parsed = pretrain.parse(given, os.environ)
    micro_batches_per_step(
        parsed.optimization, world_size=config.world_size, local_world_size=config.processes_per_node
    )
    return checkpoint_bytes(parsed)


def _class_check(module: str, name: str) -> Callable[[CheckConfig, Sequence[str]], None]:
    def check(config: CheckConfig, given: Sequence[str]) -> None:
        arguments.parse(getattr(importlib.import_module(module), name), given, program=config.module)

    return check


CHECKS: Mapping[str, Callable[[CheckConfig, Sequence[str]], int | None]] = {
    "trainer.pretrain": _pretrain,
    "trainer.mlp": _class_check("trainer.classification.config", "ClassificationConfig"),
    "trainer.classifier": _class_check("trainer.classifier", "ClassifierConfig"),
}
"""Programs whose arguments can be parsed without torch."""


def checkpoint_bytes(config: PretrainConfig) -> int:
    """Space that the checkpoints of a pretraining take: those that are kept, and the one that is being written."""
    weight = 2 if config.precision == "pure_bfloat16" else FLOAT32
    one = num_parameters(config.model.shape) * (weight + MOMENTS * FLOAT32)
    kept = config.keep_checkpoints
    if kept == -1:
        kept = -(-config.optimization.max_steps // config.checkpoint_steps)
    return one * (kept + 1)


def num_parameters(shape: ModelShape) -> int:
    """Number of weights of a BERT with both pretraining heads (Devlin et al. 2019, §3); the decoder shares the
    embeddings'."""
    hidden, inner = shape.hidden_size, shape.intermediate_size
    norm = 2 * hidden
    embeddings = (shape.vocab_size + shape.max_position_embeddings + 2) * hidden + norm
    attention = 4 * (hidden * hidden + hidden) + norm
    feed_forward = 2 * hidden * inner + inner + hidden + norm
    pooler = hidden * hidden + hidden
    heads = (hidden * hidden + hidden + norm + shape.vocab_size) + (2 * hidden + 2)
    return embeddings + shape.num_hidden_layers * (attention + feed_forward) + pooler + heads


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
