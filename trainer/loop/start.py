"""Start a training: this process's device, its gang and its task, and then the loop."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from trainer import device as devices
from trainer.device import Device, Precision, distributed
from trainer.device.distributed import Gang
from trainer.loop import ahead_of_time, training
from trainer.loop.task import Task
from trainer.loop.training_config import TrainingConfig
from trainer.loop.training_process import TrainingProcess
from trainer.runtime.environment import Environment


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
    """Meet the other processes, and train; or only compile, where the pod is there for that.

    Args:
        config: What was asked for.
        environment: Who this process is.
        output_dir: The run's folder.
        make_task: Looks at the data; called on every rank of the gang.
        precision: What will be computed in.
        model_type: What the Neuron compiler shall optimise for; its own default if None.
        background: Whether a thread beside the training will communicate too.

    Returns:
        The result, on rank 0 of a training; None otherwise.
    """
    device = devices.choose(
        config.device, local_rank=environment.local_rank, precision=precision, model_type=model_type
    )
    peak_tflops, peak_source = device.peak_tflops, device.peak_source
    if environment.peak_tflops is not None and device.takes_peak_from_pod:
        peak_tflops, peak_source = environment.peak_tflops, "TRAINFLOW_PEAK_TFLOPS"
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
            graphs_only=environment.extract_graphs,
        )
        process.say(f"This is rank 0 of {gang.world_size}, on {socket.gethostname()}.")
        if environment.precompile:
            ahead_of_time.compile_graphs(process)
            return None
        return training.train(process)
