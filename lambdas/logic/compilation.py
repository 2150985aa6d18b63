"""Number of graphs that the precompile job compiled, from the compiler's last lines."""

from __future__ import annotations

from collections.abc import Iterable

from trainflow.errors import CompilationNotReported, GraphCompilationFailed
from trainflow.protocol.compiler_log import CompilerLog
from trainflow.workflow.run import JobRef
from trainflow.workflow.run_record import Compilation


def compilation(job: JobRef, lines: Iterable[str]) -> Compilation:
    """The counts of a finished precompile job.

    Args:
        job: The precompile job, for messages.
        lines: The end of rank 0's log; the last count of each kind is taken.

    Raises:
        CompilationNotReported: If the log lacks the counts.
        GraphCompilationFailed: If a graph failed: training would compile it again, and fail, on the whole gang.
    """
    log = CompilerLog()
    for line in lines:
        log.read(line)
    if "graphs" not in log.totals:
        raise CompilationNotReported(f"The log of the job '{job.name}' has no line 'Total graphs: N'.")
    graphs, failed = log.totals["graphs"], log.totals.get("failed", 0)
    if failed:
        raise GraphCompilationFailed(f"In the job '{job.name}', {log.failure()}.")
    return Compilation(
        graphs=graphs,
        succeeded=log.totals.get("succeeded", graphs),
        failed=failed,
        cache=_cache(graphs, cached=log.totals.get("cached", 0)),
    )


def _cache(graphs: int, *, cached: int) -> str:
    if cached == 0:
        return "miss"
    return "hit" if cached >= graphs else "partial"
