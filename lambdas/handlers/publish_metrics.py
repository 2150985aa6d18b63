"""Task state `PublishMetrics`: publishes rank 0's new steps to CloudWatch and stores them in S3 for the run's record.

A log may take longer than the function's time. So it is read in batches, and each is published before the next is read:
the memory does not grow with the log, and when the time is over the next poll continues.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.backends.backend import Backend
from lambdas.gateways import metrics
from lambdas.handlers import backends, recording
from lambdas.handlers.environment import ClusterEnvironment, DeploymentEnvironment, read
from lambdas.handlers.task import logger, task
from lambdas.logic import metric_data
from lambdas.logic.step_metrics import Batch, advanced, next_batch
from lambdas.logic.unread_log import UnreadLines
from trainflow.errors import TrainflowError
from trainflow.models.log_line import LogLine
from trainflow.models.run import MetricsCursor, Run

READING_SECONDS = 30.0
"""Time for reading, of the function's 60 seconds: a request that hangs and its retry have to fit into the rest."""

LINES_BETWEEN_DEADLINE_CHECKS = 1000


class Event(BaseModel):
    run: Run
    rank0: str
    cursor: MetricsCursor


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The cursor behind the published lines, and whether the end of the log was reached."""
    unread = _unread(backends.connect(event.run.spec.compute.backend), event.rank0, event.cursor)
    lines = _until(time.monotonic() + READING_SECONDS, unread)
    cursor, batch, kept = event.cursor, None, None
    try:
        while batch is None or batch.is_full:
            batch = next_batch(lines, cursor)
            now = datetime.now(UTC)
            ahead = advanced(cursor, batch, log=unread.position, now=now)
            if batch.steps:
                # Stored before they are published: storing may be repeated, publishing may not.
                kept = (kept or recording.kept_steps(event.run.run_id)).extended(batch.steps, ahead)
                recording.keep(event.run.run_id, kept)
            _publish(event.run, batch, ahead, now=now)
            cursor = ahead
    except TrainflowError as error:
        if cursor is event.cursor:
            raise
        # Published steps cannot be withdrawn, and a retry of this poll would publish them again.
        logger.warning("stopped early", extra={"error": type(error).__name__, "reason": str(error)})
    if unread.replaced:
        logger.warning("the log was replaced: lines between the last poll and its end were not read")
        cursor = cursor.model_copy(update={"log_rotations": cursor.log_rotations + 1})
        recording.keep(event.run.run_id, (kept or recording.kept_steps(event.run.run_id)).extended((), cursor))
    return {"cursor": cursor.model_dump(mode="json"), "caught_up": unread.exhausted}


def _unread(backend: Backend, pod: str, cursor: MetricsCursor) -> UnreadLines:
    position = cursor.log if cursor.log and cursor.log.pod == pod else None
    return UnreadLines(backend.read_log(pod, since=position.since if position else None), position, pod=pod)


def _until(deadline: float, lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """The lines that are read before the deadline, and a thousand in any case, so that every poll makes progress."""
    for number, line in enumerate(lines, start=1):
        yield line
        if number % LINES_BETWEEN_DEADLINE_CHECKS == 0 and time.monotonic() > deadline:
            return


def _publish(run: Run, batch: Batch, cursor: MetricsCursor, *, now: datetime) -> None:
    cluster, floor = read(ClusterEnvironment).cluster_name, run.spec.limits.min_throughput
    metrics.publish(
        [
            *metric_data.of_progress(cluster, batch.steps, cursor, min_throughput=floor, now=now),
            *metric_data.of_steps(run.run_id, batch.steps),
            *metric_data.of_reports(run.run_id, batch.reports),
        ],
        deployment=read(DeploymentEnvironment).deployment,
    )
