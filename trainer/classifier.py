"""Train a small convolutional network on digits and upload the model to S3: `torchrun … -m trainer.classifier …`.

The PyTorchJob tutorial's training: on CPUs only, with gradients averaged by gloo. Rank, world size and rendezvous come
from the environment (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), so the training operator may start it without
torchrun, too; S3's region and credentials come from there as for any AWS program.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainer.classification.config import ClassificationConfig
from trainer.runtime import arguments, program, s3
from trainer.runtime.environment import Environment, folder
from trainer.runtime.errors import StorageFailed
from trainflow.protocol import variables

if TYPE_CHECKING:
    from torch import nn

    from trainer.classification.task import Classification, Classifier
    from trainer.device import Device
    from trainer.device.distributed import Gang
    from trainflow.protocol.s3_urls import S3Url

CHANNELS = (8, 16)
"""Channels of the two convolutions: enough to recognise nearly all digits in a few seconds of CPU time."""


@dataclass(frozen=True, kw_only=True)
class ClassifierConfig(ClassificationConfig):
    """The options of `python -m trainer.classifier`."""

    model_url: str | None = None
    """URL for the trained model, s3://bucket/key; if it is left out, the model stays in the run's folder only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.model_location()

    def model_location(self) -> S3Url | None:
        """Location for the trained model; None if no URL was given."""
        return None if self.model_url is None else s3.parse(self.model_url, option="model_url", key_required=True)


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any] | None:
    """Check the arguments, join the gang, train, and upload the model to its URL."""
    program.raise_on_sigterm()
    config = arguments.parse(ClassifierConfig, argv, program="trainer.classifier")
    output_dir = folder(config.output_dir, environment.run_dir, "output_dir", variables.RUN_DIR)
    place, data_dir = config.model_location(), config.data_dir or environment.data_dir

    from trainer.classification.task import (
        make_task,
    )  # imported late: torch takes a second, and wrong arguments are reported before
    from trainer.loop.start import start

    def task(gang: Gang, _device: Device) -> Classification:
        publish = None if place is None else lambda model: upload(model, place)
        return make_task(config, data_dir, gang, convolutional, publish=publish)

    return start(config, environment, output_dir, task)


def convolutional() -> Classifier:
    """Maps pictures (B, H, W) to unnormalised scores (B, K)."""
    from torch import nn

    from trainer.classification.task import Classifier

    first, second = CHANNELS
    return Classifier(
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


def upload(model: nn.Module, place: S3Url) -> Mapping[str, Any]:
    """Upload the weights to S3, as a file that `torch.load(…, weights_only=True)` reads.

    Returns:
        The fields of the program's result.

    Raises:
        StorageFailed: If S3 refuses the object.
    """
    import torch
    from boto3.exceptions import Boto3Error
    from botocore.exceptions import BotoCoreError, ClientError

    content = io.BytesIO()
    torch.save({name: tensor.cpu() for name, tensor in model.state_dict().items()}, content)
    try:
        s3.connect().put_object(Bucket=place.bucket, Key=place.key, Body=content.getvalue())
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise StorageFailed(
            f"--model_url {place} cannot be written ({error}); the model is in the run's newest checkpoint, so "
            "give the pod's role s3:PutObject there and run the same command again."
        ) from error
    print(f"The model is in {place}.", flush=True)
    return {"model_url": str(place)}


if __name__ == "__main__":
    program.leave(program.run(main, sys.argv[1:], os.environ))
