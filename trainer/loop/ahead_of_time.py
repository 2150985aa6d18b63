"""Compile the training's graphs into the cache on shared storage, before the gang needs them.

Rank 0 compiles and the others wait: the graphs are the same on every rank, so several compilers at once would only
compete for the CPU. The others find the graphs in the cache when the training starts.
"""

from __future__ import annotations

import sys

from trainer.compiler import compilation
from trainer.compiler.compilation import GraphCounts
from trainer.loop import training
from trainer.loop.task import TrainingProcess
from trainer.runtime.errors import GraphCompilationFailed, TrainerError


def compile_graphs(process: TrainingProcess) -> None:
    """Compile on rank 0 and print the counts there, as `neuron_parallel_compile` does.

    Raises:
        GraphCompilationFailed: On every rank, if a graph did not compile.
    """
    graphs = process.gang.from_rank0(lambda: _compile(process))
    for line in compilation.report(graphs):
        process.say(line)
    if graphs.failed:
        raise GraphCompilationFailed(
            f"{graphs.failed} of {graphs.total} graphs failed to compile ({', '.join(graphs.failed_names)}); read the "
            "compiler's message above."
        )


def _compile(process: TrainingProcess) -> GraphCounts:
    """Compile every graph of the training in one pass through the model, and return the counts."""
    uncompiled_reason = compilation.uncompiled_reason(process.device, wanted=process.config.compile)
    if uncompiled_reason is not None:
        process.say(f"Nothing to compile ahead of time: {uncompiled_reason}. The training runs uncompiled.")
        return compilation.NONE
    try:
        training.touch_graphs(process)
    except TrainerError:
        raise
    except Exception as error:  # noqa: BLE001 (whatever the compiler raises is a failed graph)
        print(f"{type(error).__name__}: {error}", file=sys.stderr, flush=True)
        graphs = compilation.counts()
        failed = max(1, graphs.failed)
        return GraphCounts(
            total=max(graphs.total, failed),
            failed=failed,
            cached=graphs.cached,
            failed_names=(compilation.failed_graph(error),),
        )
    return compilation.counts()
