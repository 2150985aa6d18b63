"""Number of graphs that the precompile job compiled, read from the lines that `neuron_parallel_compile` prints."""

from __future__ import annotations

import re
from collections.abc import Iterable

from trainflow.errors import CompilationNotReported, GraphCompilationFailed
from trainflow.models.run import JobRef
from trainflow.models.run_record import Compilation

_COUNT = re.compile(
    r"Total (?P<what>graphs|successful compilations|failed compilations|cached graphs): (?P<count>\d+)\s*$"
)

_FAILED = re.compile(
    r"(?:Got a cached failed neff|Compilation failed for|Failed compilation with)"
    r".*?(?P<module>MODULE_[\w.]*?\d+(?:\+[0-9a-f]+)?)|Failed graph: (?P<graph>.+?)\s*$"
)
"""The name of a failed graph in the messages of Neuron's compiler and of `trainer.precompile`."""

MOST_NAMES = 8
"""Largest number of failed graphs that one message names."""


def compilation(job: JobRef, lines: Iterable[str]) -> Compilation:
    """The counts of a finished precompile job.

    Args:
        job: The precompile job, for messages.
        lines: The end of rank 0's log; the last count of each kind is taken.

    Raises:
        CompilationNotReported: If the log has no counts.
        GraphCompilationFailed: If a graph failed: training would compile it again, and fail, on the whole gang.
    """
    counts, names = dict[str, int](), dict[str, None]()
    for line in lines:
        if found := _COUNT.search(line):
            counts[found["what"]] = int(found["count"])
        elif found := _FAILED.search(line):
            names[found["module"] or found["graph"]] = None
    if "graphs" not in counts:
        raise CompilationNotReported(f"The log of the job '{job.name}' has no line 'Total graphs: N'.")
    graphs, failed = counts["graphs"], counts.get("failed compilations", 0)
    if failed:
        named = f": {', '.join(list(names)[:MOST_NAMES])}" if names else ""
        raise GraphCompilationFailed(f"{failed} of {graphs} graphs failed to compile in the job '{job.name}'{named}.")
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
