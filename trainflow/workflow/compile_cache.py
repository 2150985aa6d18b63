"""Compiled graphs that runs share: the cache that a run uses, and the items of the cache table."""

from __future__ import annotations

from datetime import datetime, timedelta
from enum import StrEnum

from pydantic import Field

from trainflow.workflow.run import Fact, Run
from trainflow.workflow.run_record import Compilation

KEY = "cache_key"
EXPIRES_AT = "expires_at"
"""The table's time to live, in seconds since the epoch."""

KEPT_FOR = timedelta(days=180)
"""Time from the last use of a cache to the expiry of its item. Items are small, but nothing else deletes them."""

OWN_CACHES = "runs"
"""Folder for caches of single runs. It cannot collide with a key: keys end with a hash."""


class CacheState(StrEnum):
    """States of a cache in the table."""

    COMPILING = "compiling"
    READY = "ready"


class Hold(StrEnum):
    """Rights of a run on its cache."""

    READ = "read"
    """Reads the cache, which holds all graphs and is not written any more."""
    LEASE = "lease"
    """Compiles the graphs, for itself and for later runs."""
    OWN = "own"
    """Compiles the graphs for itself: it waited too long for another run, or holds nodes and cannot wait."""


class CacheUse(Fact):
    """The cache of a run, and the run's rights on it; travels with the run."""

    key: str
    folder: str
    """Path below `/cache`. Only the run in its name writes there, so no two runs write into the same folder."""
    hold: Hold


class CacheRecord(Fact):
    """Item of the cache table for a key."""

    cache_key: str
    state: CacheState
    run_id: str
    """The run that compiles the graphs, or has compiled them."""
    execution_arn: str
    since: datetime
    """Start of the lease."""
    ready_at: datetime | None = None
    graphs: int | None = Field(default=None, ge=0)
    expires_at: int

    @property
    def folder(self) -> str:
        """Folder of the graphs, below `/cache`."""
        return shared_folder(self.cache_key, self.run_id)

    @property
    def compilation(self) -> Compilation:
        """Compilation result of a run that finds the cache ready: it compiled nothing."""
        graphs = self.graphs or 0
        return Compilation(graphs=graphs, succeeded=graphs, failed=0, cache="hit")


def shared_folder(key: str, run_id: str) -> str:
    """Folder below `/cache` for the graphs that a run compiles and later runs may use."""
    return f"{key}/{run_id}"


def own_files(run_id: str) -> str:
    """Folder below `/cache` for files of a single run, which may be lost."""
    return f"{OWN_CACHES}/{run_id}"


def own_folder(run_id: str) -> str:
    """Folder below `/cache` for the graphs of a single run."""
    return f"{own_files(run_id)}/graphs"


def new_lease(run: Run, key: str, *, now: datetime) -> CacheRecord:
    """Item of the table while the run compiles."""
    return CacheRecord(
        cache_key=key,
        state=CacheState.COMPILING,
        run_id=run.run_id,
        execution_arn=run.execution_arn,
        since=now,
        expires_at=expiry(now),
    )


def expiry(used_at: datetime) -> int:
    """Time when the table deletes an unused cache's item, in seconds since the epoch."""
    return int((used_at + KEPT_FOR).timestamp())
