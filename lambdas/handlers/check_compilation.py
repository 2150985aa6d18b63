"""Task state `CheckCompilation`: did every graph compile? If one did not, training must not start.

If all did, the run gives its lease back by declaring the cache ready for others.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways.compile_caches import CompileCaches
from lambdas.handlers import backends
from lambdas.handlers.environment import CacheEnvironment, read
from lambdas.handlers.task import logger, task
from lambdas.logic.compilation import compilation
from trainflow.models.compile_cache import CacheUse, Hold
from trainflow.models.run import JobRef, Run

TAIL_LINES = 200
"""The counts are among the last lines that the compiler prints."""


class Event(BaseModel):
    run: Run
    job: JobRef
    cache: CacheUse


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The counts of graphs, and whether they came from the cache."""
    backend = backends.connect(event.job.backend)
    pod = backend.rank0(event.job)
    lines = backend.read_log(pod, tail_lines=TAIL_LINES) if pod else []
    counts = compilation(event.job, (line.text for line in lines))
    if event.cache.hold is Hold.LEASE:
        _seal(event.cache, event.run.run_id, graphs=counts.graphs)
    return counts.model_dump(mode="json")


def _seal(cache: CacheUse, run_id: str, *, graphs: int) -> None:
    """A lease that is lost harms nobody: the folder is the run's own, so the run goes on and others do not find it."""
    caches = CompileCaches(read(CacheEnvironment).cache_table)
    if not caches.seal(cache.key, run_id, graphs=graphs, now=datetime.now(UTC)):
        logger.warning("the lease of the compile cache is somebody else's", extra={"cache_key": cache.key})
