"""What Neuron's runtime is to a process of a gang, on XLA's CPU device: Python loads this file before the program.

XLA's CPU device has no gangs of several processes: each would be alone. Here each believes torchrun, so that it traces
what it would trace on NeuronCores; nothing travels between them but what goes over gloo. Under
NEURON_EXTRACT_GRAPHS_ONLY everything that is read from the device is zero, as with `neuron_parallel_compile`, which
notes graphs down and runs none of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

if "RANK" in os.environ and "GRAPHS_FOLDER" in os.environ:
    os.environ["XLA_SAVE_TENSORS_FMT"] = "hlo"
    os.environ["XLA_SAVE_TENSORS_FILE"] = f"{os.environ['GRAPHS_FOLDER']}/rank-{os.environ['RANK']}"

    import torch
    import torch_xla.runtime

    torch_xla.runtime.world_size = lambda: int(os.environ["WORLD_SIZE"])
    torch_xla.runtime.global_ordinal = lambda: int(os.environ["RANK"])

    def reading(read: Callable[..., Any]) -> Callable[..., Any]:
        """The same function of a tensor that is on the CPU, or of zeros in the place of one on the device."""

        def of_zeros(tensor: torch.Tensor, *arguments: Any, **options: Any) -> Any:
            if tensor.device.type == "xla":
                read(tensor, *arguments, **options)  # traces and runs what is read
                tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
            return read(tensor, *arguments, **options)

        return of_zeros

    if os.environ.get("NEURON_EXTRACT_GRAPHS_ONLY") == "1":
        for name in ("tolist", "item", "cpu", "numpy", "__bool__", "__float__", "__int__"):
            setattr(torch.Tensor, name, reading(getattr(torch.Tensor, name)))
