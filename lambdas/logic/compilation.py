"""How many graphs did the precompile job compile? Read from the lines that `neuron_parallel_compile` prints."""

from __future__ import annotations

import re
from collections.abc import Iterable

from lambdas.errors import CompilationNotReported, GraphCompilationFailed
from lambdas.models.run import JobRef
from lambdas.models.run_record import Compilation

_COUNT = re.compile(
    r"Total (?P<what>graphs|successful compilations|failed compilations|cached graphs): (?P<count>\d+)\s*$"
)


def compilation(job: JobRef, lines: Iterable[str]) -> Compilation:
    """The counts of a finished precompile job.

    Args:
        job: The precompile job, for messages.
        lines: The end of rank 0's log; the last count of each kind is taken.

    Raises:
        CompilationNotReported: If the log has no counts.
        GraphCompilationFailed: If a graph failed: training would compile it again, and fail, on the whole gang.
    """
    counts = {found["what"]: int(found["count"]) for line in lines if (found := _COUNT.search(line))}
    if "graphs" not in counts:
        raise CompilationNotReported(f"The log of the job '{job.name}' has no line 'Total graphs: N'.")
    graphs, failed = counts["graphs"], counts.get("failed compilations", 0)
    if failed:
        raise GraphCompilationFailed(f"{failed} of {graphs} graphs failed to compile in the job '{job.name}'.")
    return Compilation(
        graphs=graphs,
        succeeded=counts.get("successful compilations", graphs),
        failed=failed,
        cache=_cache(graphs, cached=counts.get("cached graphs", 0)),
    )


def _cache(graphs: int, *, cached: int) -> str:
    if cached == 0:
        return "miss"
    return "hit" if cached >= graphs else "partial"
