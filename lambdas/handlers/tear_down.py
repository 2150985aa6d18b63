"""Task states `TearDown`, `TearDownAfterFailure` and `ReleaseNodes`: delete and release everything that costs money.

Safe to repeat. `ReleaseNodes` does it for a run that goes on with nodes of another type.

State `DeleteJob` deletes one job only, so that it can be submitted again: the run keeps its nodes.

State `StopAtLimit` waits until the programs have ended, which save their state when they are asked to end, and releases
the nodes then.

What rank 0 logs until its program has ended is published: the log is deleted with the pod.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel

from lambdas.backends.backend import Backend
from lambdas.handlers import backends, recording
from lambdas.handlers.environment import read
from lambdas.handlers.last_lines import keep_last_lines
from lambdas.handlers.publishing import publish_last_lines
from lambdas.handlers.releasing import release_caches, release_nodes
from lambdas.handlers.task import logger, task
from lambdas.handlers.training_result import trained_steps
from lambdas.logic.hangs import hung_at
from lambdas.logic.restarting import grace_seconds, trained_soundly
from trainflow.deployment.environment import ArtifactEnvironment
from trainflow.record.failure import caught_error
from trainflow.workflow.run import JobRef, MetricsCursor, Run
from trainflow.workflow.run_error import RunError

STOP_POLL_SECONDS = 10

LONGEST_STOP = timedelta(minutes=5)
"""More than a pod's grace period and its clean-up; a pod on a lost node never ends."""


class Event(BaseModel):
    run: Run
    job: JobRef | None = None
    """The only job to delete; None for all that the run has."""
    stopping_since: datetime | None = None
    """Time when the run reached a limit; None for a run that is torn down at once."""
    error: dict[str, Any] | None = None
    """Error of that job."""
    restarts_in_vain: int = 0
    """Restarts since the run's last progress, the one that follows included."""
    training: JobRef | None = None
    """The run's newest training job, whose last steps are published; None before the first, and after a success."""
    progress: MetricsCursor = MetricsCursor()
    """Position in its log up to the last published step."""
    trained: JobRef | None = None
    """The job of a training that has succeeded, whose result is read before its pods are deleted."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Tear down the run, or only `job` if the event names one.

    Returns:
        deleted_jobs: Names of the deleted jobs.
        nodes_released: Number of released nodes.
        progress: The cursor after the last published step.
        trained_steps: Steps that the program has counted; not with `job`.
        finished, wait_seconds: Whether the tear-down is done, or the seconds until it is tried again; not with `job`.
        run: The run, which remembers the node of the failure; only with `job`.
        restarted_at_step, restarted_at_checkpoint: The newest before the restart; only with `job`.
        folder: The run's folder of artifacts; only with `job`.
    """
    if event.job is not None:
        return _delete(event, event.job)
    release_caches(event.run.run_id)
    compute = event.run.spec.compute
    backend = backends.connect(compute.backend)
    keep_last_lines(backend, event.run.run_id)
    recording.keep_placement(lambda: backend, event.run.run_id)
    steps = _trained_steps(backend, event.trained)
    jobs: list[str] = []
    # Decision 53: a log that is followed ends with its last line, although the pod is deleted.
    progress = publish_last_lines(
        backend, event.run, event.training, event.progress, lambda: jobs.extend(backend.cancel(event.run.run_id))
    )
    answer = {"deleted_jobs": jobs, "progress": progress.model_dump(mode="json"), "trained_steps": steps}
    if event.stopping_since is not None and _is_stopping(backend, event.run.run_id, event.stopping_since):
        return {**answer, "nodes_released": 0, "finished": False, "wait_seconds": STOP_POLL_SECONDS}
    nodes = release_nodes(backend, [compute.instance_type])
    return {**answer, "nodes_released": nodes, "finished": True, "wait_seconds": 0}


def _delete(event: Event, job: JobRef) -> dict[str, Any]:
    backend = backends.connect(job.backend)
    failure = caught_error(event.error) if event.error is not None else None
    lost_pod = failure.pod if failure is not None and failure.name == "NodeLost" else None
    grace = grace_seconds(failure.name if failure else None)
    keep_last_lines(backend, event.run.run_id, lost_pod=lost_pod)
    published = publish_last_lines(
        backend,
        event.run,
        job,
        event.progress,
        lambda: backend.delete(job, grace_seconds=grace),
        lost_pod=lost_pod,
    )
    progress = published.model_copy(
        update={
            # The steps that were logged after the failure are this job's, and no progress of the next one.
            "restarted_at_step": -1 if published.last_step is None else published.last_step,
            "restarted_at_checkpoint": -1 if published.last_checkpoint is None else published.last_checkpoint,
            "restarts_in_vain": event.restarts_in_vain,
            "hung_at": hung_at(failure.name, failure.line, published) if failure else None,
        }
    )
    return {
        "deleted_jobs": [job.name],
        "nodes_released": 0,
        "run": _after(event, failure, published).model_dump(mode="json"),
        "progress": progress.model_dump(mode="json"),
        "restarted_at_step": progress.restarted_at_step,
        "restarted_at_checkpoint": progress.restarted_at_checkpoint,
        "folder": read(ArtifactEnvironment).url_of(event.run.run_id),
    }


def _trained_steps(backend: Backend, trained: JobRef | None) -> int | None:
    """Never raises: no error may keep the run's nodes."""
    try:
        return trained_steps(backend, trained) if trained is not None else None
    except Exception:  # noqa: BLE001
        logger.exception("the program's result could not be read")
        return None


def _is_stopping(backend: Backend, run_id: str, since: datetime) -> bool:
    """Whether programs of the run, which were asked to end, have some time left to do so."""
    return datetime.now(UTC) - since < LONGEST_STOP and not backend.is_stopped(run_id)


def _after(event: Event, failure: RunError | None, progress: MetricsCursor) -> Run:
    run = event.run.model_copy(update={"restarts_in_vain": event.restarts_in_vain})
    if failure is None:
        return run
    job = event.job.name if event.job is not None else ""
    checkpoints = run.failed_checkpoints.after(error=failure.name, checkpoint=failure.checkpoint, job=job)
    nodes = run.failed_nodes.after(error=failure.name, node=failure.node)
    is_sound = trained_soundly(failure.name, progress) and nodes.avoided == run.failed_nodes.avoided
    return run.model_copy(
        update={"failed_nodes": nodes, "failed_checkpoints": checkpoints, "nodes_are_sound": is_sound}
    )
