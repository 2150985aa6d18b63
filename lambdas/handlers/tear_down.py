"""Task states `TearDown`, `TearDownAfterFailure` and `ReleaseNodes`: delete and release everything that costs money.

Safe to repeat. `ReleaseNodes` does it for a run that goes on with nodes of another type.

State `DeleteJob` deletes one job only, so that it can be submitted again: the run keeps its nodes.

State `StopAtLimit` waits until the programs have ended, which save their state when they are asked to end, and releases
the nodes then.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from lambdas.backends.backend import Backend
from lambdas.handlers import backends
from lambdas.handlers.last_lines import keep_last_lines
from lambdas.handlers.releasing import release_caches, release_run
from lambdas.handlers.task import task
from trainflow.models.run import JobRef, Run
from trainflow.record.failure import caught_error

STOP_POLL_SECONDS = 10

LONGEST_STOP = timedelta(minutes=5)
"""More than a pod's grace period and its clean-up; a pod on a lost node never ends."""


class Event(BaseModel):
    run: Run
    job: JobRef | None = None
    """The only job to delete; None for all that the run has."""
    stopping_since: datetime | None = None
    """When the run reached a limit; None for a run that is torn down at once."""
    error: dict[str, Any] | None = None
    """Error in which that job ended."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The names of the deleted jobs and the number of released nodes.

    With one job also the run, which remembers the node on which the job failed.
    """
    if event.job is not None:
        backend = backends.connect(event.job.backend)
        keep_last_lines(backend, event.run.run_id)
        backend.delete(event.job)
        run = _after(event.run, event.error)
        return {"deleted_jobs": [event.job.name], "nodes_released": 0, "run": run.model_dump(mode="json")}
    release_caches(event.run.run_id)
    compute = event.run.spec.compute
    backend = backends.connect(compute.backend)
    if event.stopping_since is not None and _is_stopping(backend, event.run.run_id, event.stopping_since):
        return {"finished": False, "wait_seconds": STOP_POLL_SECONDS}
    released = release_run(backend, event.run.run_id, [compute.instance_type])
    done = {"deleted_jobs": released.jobs, "nodes_released": released.nodes}
    return done if event.stopping_since is None else {**done, "finished": True, "wait_seconds": 0}


def _is_stopping(backend: Backend, run_id: str, since: datetime) -> bool:
    """Whether programs of the run, which are asked to end, have some time left to do so."""
    keep_last_lines(backend, run_id)
    backend.cancel(run_id)
    return datetime.now(UTC) - since < LONGEST_STOP and not backend.is_stopped(run_id)


def _after(run: Run, error: dict[str, Any] | None) -> Run:
    if error is None:
        return run
    failure = caught_error(error)
    return run.model_copy(update={"failed_nodes": run.failed_nodes.after(error=failure.name, message=failure.message)})
