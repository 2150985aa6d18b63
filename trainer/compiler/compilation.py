"""Compilation by TorchInductor: whether it is possible, and the counts of compiled and cached graphs.

The cache (TORCHINDUCTOR_CACHE_DIR) lies on shared storage; a separate job fills it before the gang trains. The counts
are TorchInductor's own. They are printed as `neuron_parallel_compile` prints its counts, so that one reader fits both.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from trainer.device import Device
from trainflow.protocol.compiler_log import compiler_lines


@dataclass(frozen=True, kw_only=True)
class GraphCounts:
    """Counts of the graphs of this process until now; a graph is one forward pass with its backward pass."""

    total: int
    failed: int
    cached: int
    """Graphs that were taken from the cache instead of compiled."""
    failed_names: tuple[str, ...] = ()

    @property
    def succeeded(self) -> int:
        return self.total - self.failed


NONE = GraphCounts(total=0, failed=0, cached=0)


def uncompiled_reason(device: Device, *, wanted: bool | None) -> str | None:
    """The reason why the layers are not compiled, as half a sentence; None if they are compiled.

    Args:
        device: The device of the training.
        wanted: The value of --compile; None leaves the choice to the device.
    """
    if device.compiler is None:
        return f"the device {device.torch_device.type} brings a compiler of its own"
    if wanted is None and not device.compiles_by_default:
        return f"steps are faster so on the device {device.torch_device.type}; --compile true compiles all the same"
    if wanted is False:
        return "--compile is false"
    if device.torch_device.type == "cpu" and not _has_cpp_compiler():
        return "there is no C++ compiler (install g++, or set CXX)"
    return None


def keep_layers_whole() -> None:
    """Compile one graph per layer; by default, dynamo also cuts a graph where a bucket of gradients ends."""
    import torch._dynamo

    torch._dynamo.config.optimize_ddp = False


def counts() -> GraphCounts:
    """Count the graphs that this process has compiled or taken from the cache."""
    from torch._dynamo.utils import counters

    return graph_counts(counters["aot_autograd"])


def graph_counts(aot_autograd: Mapping[str, int]) -> GraphCounts:
    """Read the counts from TorchInductor's counters: of `total` graphs, `ok` were compiled without an error."""
    total = aot_autograd.get("total", 0)
    return GraphCounts(
        total=total,
        failed=total - aot_autograd.get("ok", 0),
        cached=aot_autograd.get("autograd_cache_hit", 0),
    )


def report(graphs: GraphCounts, *, now: datetime | None = None) -> list[str]:
    """The last lines of `neuron_parallel_compile`, with one more line for the cache and one line per failed graph."""
    when = (now or datetime.now(UTC)).strftime("%Y-%m-%d %H:%M:%S.%f")
    totals = {
        "graphs": graphs.total,
        "succeeded": graphs.succeeded,
        "failed": graphs.failed,
        "cached": graphs.cached,
    }
    return [f"{when}: INFO ||PARALLEL_COMPILE||: {line}" for line in compiler_lines(totals, graphs.failed_names)]


def failed_graph(error: Exception) -> str:
    """Name the graph whose compilation failed, such as `forward (bert.py:40)`, by dynamo's record; else the error's
    class."""
    from torch._dynamo.utils import get_compilation_metrics

    number = str(getattr(error, "compile_id", None))
    for metrics in get_compilation_metrics():
        if metrics.compile_id == number and metrics.co_filename:
            return f"{metrics.co_name} ({Path(metrics.co_filename).name}:{metrics.co_firstlineno})"
    return type(error).__name__


def _has_cpp_compiler() -> bool:
    from torch._inductor.cpp_builder import get_cpp_compiler
    from torch._inductor.exc import InvalidCxxCompiler

    try:
        get_cpp_compiler()
    except InvalidCxxCompiler:
        return False
    return True
