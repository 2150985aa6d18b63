"""Task state `CheckCompilation`: checks that every graph compiled. If one did not, training must not start.

If all did, the cache is marked as ready for other runs, which releases the run's lease.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways.compile_caches import CompileCaches
from lambdas.handlers import backends
from lambdas.handlers.environment import read
from lambdas.handlers.task import logger, task
from lambdas.logic.compilation import compilation
from trainflow.deployment.environment import CacheEnvironment
from trainflow.workflow.compile_cache import CacheUse, Hold
from trainflow.workflow.run import JobRef, Run

TAIL_LINES = 200
"""Last lines of the log that are read: the compiler prints the counts at its end."""


class Event(BaseModel):
    run: Run
    job: JobRef
    cache: CacheUse


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The numbers of graphs, and whether they came from the cache."""
    backend = backends.connect(event.job.backend)
    pod = backend.rank0(event.job)
    lines = backend.read_log(pod, tail_lines=TAIL_LINES) if pod else []
    counts = compilation(event.job, (line.text for line in lines))
    if event.cache.hold is Hold.LEASE:
        _seal(event.cache, event.run.run_id, graphs=counts.graphs)
    return counts.model_dump(mode="json")


def _seal(cache: CacheUse, run_id: str, *, graphs: int) -> None:
    """Mark the cache as ready. A lost lease does no harm: the run continues with the folder that it compiled."""
    caches = CompileCaches(read(CacheEnvironment).cache_table)
    if not caches.seal(cache.key, run_id, graphs=graphs, now=datetime.now(UTC)):
        logger.warning("another run has the lease of the compile cache", extra={"cache_key": cache.key})
