"""Task state `AcquireCache`: finds the run's compiled graphs, takes the lease to compile them, or waits for another run
that does.

It comes before nodes are requested, so that no accelerator waits for another run's compiler. Safe to repeat.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways import executions
from lambdas.gateways.compile_caches import CompileCaches
from lambdas.handlers.environment import read
from lambdas.handlers.task import task
from lambdas.logic.compile_cache import cache_key, has_waited_too_long
from lambdas.logic.run_limits import require_within_limits
from trainflow.deployment.environment import CacheEnvironment
from trainflow.workflow.compile_cache import CacheRecord, CacheState, CacheUse, Hold, new_lease, own_folder
from trainflow.workflow.pauses import pause_seconds
from trainflow.workflow.run import Run


class Event(BaseModel):
    run: Run
    image_digest: str | None
    cache: CacheUse | None = None
    """Cache that the run acquired earlier. After that a run requests nodes and keeps them."""
    lost_cache: CacheUse | None
    """A ready cache whose folder the run did not find."""
    waiting_since: datetime | None
    """Time of the first poll that found another run compiling; None before."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The cache, or the seconds to wait before the next poll."""
    run, now = event.run, datetime.now(UTC)
    require_within_limits(run, now=now)
    if event.cache is not None and event.cache.hold is Hold.OWN:
        return _answer(event.cache)
    caches = CompileCaches(read(CacheEnvironment).cache_table)
    key = cache_key(run.spec, image_digest=event.image_digest)
    found = caches.find(key)
    if found and found.state is CacheState.READY and _is_lost(found, event.lost_cache):
        caches.forget(key, found.run_id)
        found = None
    if found and found.state is CacheState.READY and caches.touch(found, now=now):
        return _acquired(found, Hold.READ)
    if found and found.run_id == run.run_id:
        return _acquired(found, Hold.LEASE)
    if found is None or not executions.is_running(found.execution_arn):
        lease = new_lease(run, key, now=now)
        if caches.lease(lease, instead_of=found):
            return _acquired(lease, Hold.LEASE)
    waiting_since = event.waiting_since or now
    if event.cache is not None or has_waited_too_long(since=waiting_since, now=now):
        return _answer(CacheUse(key=key, folder=own_folder(run.run_id), hold=Hold.OWN))
    return _answer(
        None,
        waiting_for=found.run_id if found else None,
        waiting_since=waiting_since.isoformat(),
        wait_seconds=pause_seconds((now - waiting_since).total_seconds(), shortest=run.spec.limits.poll_seconds),
    )


def _is_lost(found: CacheRecord, lost: CacheUse | None) -> bool:
    return lost is not None and found.folder == lost.folder


def _acquired(record: CacheRecord, hold: Hold) -> dict[str, Any]:
    compilation = record.compilation.model_dump(mode="json") if hold is Hold.READ else None
    return _answer(CacheUse(key=record.cache_key, folder=record.folder, hold=hold), compilation=compilation)


def _answer(cache: CacheUse | None, **facts: Any) -> dict[str, Any]:
    """The answer with all fields: the state machine reads every one, whatever the answer."""
    answer = {"compilation": None, "waiting_for": None, "waiting_since": None, "wait_seconds": 0, **facts}
    return {"acquired": cache is not None, "cache": cache.model_dump(mode="json") if cache else None, **answer}
