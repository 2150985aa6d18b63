"""A small convolutional network learns digits and puts its model into S3: `torchrun … -m trainer.classifier …`.

The PyTorchJob tutorial's training: CPUs alone, gradients over gloo. Rank, world size and rendezvous come from the
environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), so the training operator may start it without torchrun, too;
S3's region and credentials come from there as for any AWS program.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainer import arguments, program, s3
from trainer.classification.config import ClassificationConfig
from trainer.environment import Environment
from trainer.errors import StorageFailed
from trainer.s3 import Location

if TYPE_CHECKING:
    from torch import nn

    from trainer.classification.training import Classification

CHANNELS = (8, 16)
"""Of the two convolutions: enough to recognise nearly all digits, and a few seconds of a CPU."""


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig:
    """Everything that `python -m trainer.classifier` can be told."""

    model_url: str | None = None
    """Where to put the trained model, s3://bucket/key; only the run's folder gets it if left out."""
    training: ClassificationConfig = field(default_factory=ClassificationConfig)

    def __post_init__(self) -> None:
        if self.model_url is not None:
            s3.parse(self.model_url, option="model_url", key_required=True)


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any] | None:
    """Check the arguments, meet the other processes, train, and put the model where it was asked to be."""
    program.raise_on_sigterm()
    config = arguments.parse(ClassifierConfig, argv, program="trainer.classifier")

    from trainer.classification import training  # torch takes a second: wrong arguments need not wait for it

    if environment.precompile:
        training.nothing_to_compile(environment)
        return None
    with training.joined(config.training, environment, convolutional) as job:
        result = training.train(job)
        if result is None or config.model_url is None:
            return result
        upload(job, s3.parse(config.model_url, option="model_url", key_required=True))
        return {**result, "model_url": config.model_url}


def convolutional() -> nn.Module:
    """Pictures (B, H, W) in, unnormalised scores (B, K) out."""
    from torch import nn

    first, second = CHANNELS
    return nn.Sequential(
        nn.Unflatten(1, (1, 28)),
        nn.Conv2d(1, first, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(first, second, kernel_size=3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(second * 7 * 7, 10),
    )


def upload(job: Classification, place: Location) -> None:
    """Put the weights into S3, as a file that `torch.load(…, weights_only=True)` reads.

    Raises:
        StorageFailed: If S3 does not take them.
    """
    import torch
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    from trainer.classification.training import on_host

    content = io.BytesIO()
    torch.save(on_host(job.model), content)
    try:
        s3.connect().put_object(Bucket=place.bucket, Key=place.key, Body=content.getvalue())
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise StorageFailed(
            f"--model_url {place.url} cannot be written ({error}); the model is in the run's newest checkpoint, so "
            "give the pod's role s3:PutObject there and run the same command again."
        ) from error
    job.say(f"The model is in {place.url}.")


if __name__ == "__main__":
    program.leave(program.run(main, sys.argv[1:], os.environ))
