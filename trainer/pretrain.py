"""BERT pretraining, data-parallel: `torchrun … -m trainer.pretrain --data_dir … --output_dir …`.

Runs as a single process too. Goes on from the newest verified checkpoint of its output folder, prints the
tutorials' line for every logged step, and leaves a result for the pod's status. Under TRAINFLOW_PRECOMPILE=1 it only
compiles its graphs into the cache.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from trainer import arguments, program, tutorial
from trainer.config import PretrainConfig
from trainer.environment import Environment
from trainer.errors import ConfigInvalid
from trainer.presets import with_preset
from trainer.scaling import micro_batches_per_step


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any] | None:
    """Check the arguments, meet the other processes, look at the data, and train (or only compile)."""
    program.raise_on_sigterm()
    config = parse(argv, os.environ)
    data_dir = _folder(config.data_dir, environment.data_dir, "data_dir", "TRAINFLOW_DATA_DIR")
    output_dir = _folder(config.output_dir, environment.run_dir, "output_dir", "TRAINFLOW_RUN_DIR")
    micro_batches = micro_batches_per_step(
        config.optimization, world_size=environment.world_size, local_world_size=environment.local_world_size
    )

    from trainer import device, distributed, shards  # torch takes a second: wrong arguments need not wait for it
    from trainer.run import Run

    own_device = device.choose(
        config.device, local_rank=environment.local_rank, precision=config.precision, model_type="transformer"
    )
    peak_tflops, peak_source = own_device.peak_tflops, own_device.peak_source
    if environment.peak_tflops is not None and own_device.takes_peak_from_pod:
        peak_tflops, peak_source = environment.peak_tflops, "TRAINFLOW_PEAK_TFLOPS"
    with distributed.join(environment, own_device, background=config.optimization.zero1) as gang:
        dataset = gang.from_rank0(lambda: shards.open_dataset(data_dir))
        run = Run(
            config,
            dataset,
            own_device,
            gang,
            output_dir,
            micro_batches=micro_batches,
            peak_tflops=peak_tflops,
            peak_source=peak_source,
            leads_node=environment.local_rank == 0,
            graphs_only=environment.extract_graphs,
        )
        run.say(f"This is rank 0 of {gang.world_size}, on {socket.gethostname()}.")
        if environment.precompile:
            from trainer.ahead_of_time import compile_graphs

            compile_graphs(run)
            return None
        from trainer.training import train

        return train(run)


def parse(argv: Sequence[str], environ: Mapping[str, str]) -> PretrainConfig:
    """What the arguments ask for, the trainer's own or the tutorial's.

    Raises:
        ConfigInvalid: If one of them cannot be had.
    """
    words = tutorial.translated(argv, environ)
    return arguments.parse(PretrainConfig, words, program="trainer.pretrain", complete=with_preset)


def _folder(given: Path | None, in_environment: Path | None, option: str, variable: str) -> Path:
    folder = given or in_environment
    if folder is None:
        raise ConfigInvalid(f"--{option} is missing; give it, or set {variable}.")
    return folder


if __name__ == "__main__":
    program.leave(program.run(main, sys.argv[1:], os.environ))
