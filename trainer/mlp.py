"""Train a perceptron of three layers on digits: `torchrun … -m trainer.mlp --output_dir …`.

The EKS tutorial's first training on Trainium. Ends with the tutorial's `Final loss is …`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from trainer.classification.config import ClassificationConfig
from trainer.runtime import arguments, program
from trainer.runtime.environment import Environment, folder
from trainflow.protocol import variables

if TYPE_CHECKING:
    from trainer.classification.task import Classifier

WIDTHS = (784, 120, 84, 10)
"""Pixels, two hidden layers, classes, as in the tutorial's model."""


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any] | None:
    """Check the arguments, join the gang, and train."""
    program.raise_on_sigterm()
    config = arguments.parse(ClassificationConfig, argv, program="trainer.mlp")
    output_dir = folder(config.output_dir, environment.run_dir, "output_dir", variables.RUN_DIR)
    data_dir = config.data_dir or environment.data_dir

    from trainer.classification.task import (
        make_task,
    )  # imported late: torch takes a second, and wrong arguments are reported before
    from trainer.loop.start import start

    return start(config, environment, output_dir, lambda gang, _device: make_task(config, data_dir, gang, perceptron))


def perceptron() -> Classifier:
    """Maps pictures (B, H, W) to unnormalised scores (B, K)."""
    from torch import nn

    from trainer.classification.task import Classifier

    pixels, first, second, classes = WIDTHS
    return Classifier(
        nn.Flatten(),
        nn.Linear(pixels, first),
        nn.ReLU(),
        nn.Linear(first, second),
        nn.ReLU(),
        nn.Linear(second, classes),
    )


if __name__ == "__main__":
    program.leave(program.run(main, sys.argv[1:], os.environ))
