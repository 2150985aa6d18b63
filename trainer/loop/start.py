"""Starts a training: chooses the device, joins the gang, makes the task, and runs the loop."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainer import device as devices
from trainer.device import Device, Precision, distributed
from trainer.device.distributed import Gang
from trainer.loop import ahead_of_time, training
from trainer.loop.task import Task, TrainingProcess
from trainer.loop.training_config import TrainingConfig
from trainer.runtime.environment import Environment
from trainflow.protocol import variables


def start(
    config: TrainingConfig,
    environment: Environment,
    output_dir: Path,
    make_task: Callable[[Gang, Device], Task[Any]],
    *,
    precision: Precision = "float32",
    model_type: str | None = None,
    background: bool = False,
) -> Mapping[str, Any] | None:
    """Join the gang and train; or only compile, under TRAINFLOW_PRECOMPILE=1.

    Args:
        config: The settings of the training.
        environment: The environment, with this process's ranks.
        output_dir: The run's folder.
        make_task: Opens the data set and makes the task; called on every rank of the gang.
        precision: The precision of the computation.
        model_type: The kind of model that the Neuron compiler optimises for; None for its default.
        background: Whether another thread communicates while the training runs.

    Returns:
        The result, on rank 0 of a training; None otherwise.
    """
    device = devices.choose(
        config.device, local_rank=environment.local_rank, precision=precision, model_type=model_type
    )
    peak_tflops, peak_source = device.peak_tflops, device.peak_source
    if environment.peak_tflops is not None and device.takes_peak_from_pod:
        peak_tflops, peak_source = environment.peak_tflops, variables.PEAK_TFLOPS
    with distributed.join(environment, device, background=background) as gang:
        process = TrainingProcess(
            config,
            make_task(gang, device),
            device,
            gang,
            output_dir,
            peak_tflops=peak_tflops,
            peak_source=peak_source,
            leads_node=environment.local_rank == 0,
            local_dir=environment.local_checkpoints,
            graphs_only=environment.extract_graphs,
            earlier_dirs=environment.earlier_folders(output_dir),
            earlier_bounds=environment.bounds(output_dir),
        )
        process.say(f"This is rank 0 of {gang.world_size}, on {socket.gethostname()}.")
        if environment.precompile:
            ahead_of_time.compile_graphs(process)
            return None
        return training.train(process)
