"""BERT pretraining, data-parallel: `torchrun … -m trainer.pretrain --data_dir … --output_dir …`.

Runs as a single process, too. It resumes from the newest verified checkpoint of its output folder, prints the
tutorials' line for every logged step, and writes a result for the pod's status. Under TRAINFLOW_PRECOMPILE=1 it only
compiles its graphs into the cache.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainer.loop.scaling import micro_batches_per_step
from trainer.pretraining import tutorial
from trainer.pretraining.config import PretrainConfig
from trainer.pretraining.presets import with_preset
from trainer.runtime import arguments, program
from trainer.runtime.environment import Environment, folder
from trainflow.protocol import variables

if TYPE_CHECKING:
    from trainer.device import Device
    from trainer.device.distributed import Gang
    from trainer.pretraining.task import Pretraining


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any] | None:
    """Check the arguments, join the gang, check the data set, and train (or only compile)."""
    program.raise_on_sigterm()
    config = parse(argv, os.environ)
    data_dir = folder(config.data_dir, environment.data_dir, "data_dir", variables.DATA_DIR)
    output_dir = folder(config.output_dir, environment.run_dir, "output_dir", variables.RUN_DIR)
    micro_batches = micro_batches_per_step(
        config.optimization, world_size=environment.world_size, local_world_size=environment.local_world_size
    )

    from trainer.loop.start import start  # imported late: torch takes a second, and wrong arguments are reported before

    return start(
        config,
        environment,
        output_dir,
        lambda gang, device: make_task(config, data_dir, gang, device, micro_batches=micro_batches),
        precision=config.precision or "float32",
        model_type="transformer",
        background=config.optimization.zero1,
    )


def make_task(config: PretrainConfig, data_dir: Path, gang: Gang, device: Device, *, micro_batches: int) -> Pretraining:
    """Open and check the shards, once for the gang.

    Raises:
        DatasetNotFound, DatasetInvalid: If shards are missing, or one cannot be read.
    """
    from trainer.data import shards
    from trainer.pretraining.task import Pretraining

    dataset = gang.from_rank0(lambda: shards.open_dataset(data_dir))
    if gang.rank == 0:
        print(
            f"Data set: {dataset.num_samples} samples of {dataset.max_seq_length} tokens in {len(dataset.shards)} "
            f"shards for {gang.world_size} ranks; samples, not shards, are divided.",
            flush=True,
        )
    if config.verify_shards:
        # Every rank compares its share before its first step, and no step ends before all ranks take part in it.
        unknown = dataset.require_unchanged(rank=gang.rank, world_size=gang.world_size)
        if unknown and gang.rank == 0:
            print(f"Warning: {unknown} shards have no digest of the stager and are not verifiable.", flush=True)
    precision = config.precision or device.default_precision
    return Pretraining(config, dataset, precision, micro_batches, gang.world_size)


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> PretrainConfig:
    """Parse the arguments, which are the trainer's own or the tutorial's.

    Raises:
        ConfigInvalid: If an argument is not supported.
    """
    words = tutorial.translated(argv, environ)
    return arguments.parse(PretrainConfig, words, program="trainer.pretrain", complete=with_preset)


if __name__ == "__main__":
    program.leave(program.run(main, sys.argv[1:], os.environ))
