"""Task state `PublishMetrics`: publishes rank 0's new steps to CloudWatch and stores them in S3 for the run's record.

A log may take longer than the function's time. So it is read in batches, and each is published before the next is read:
the memory does not grow with the log, and when the time is over the next poll continues.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import ClientError
from pydantic import BaseModel

from lambdas.backends.backend import Backend
from lambdas.gateways import metrics
from lambdas.handlers import backends, recording
from lambdas.handlers.environment import read
from lambdas.handlers.task import logger, task
from lambdas.logic import metric_data
from lambdas.logic.step_metrics import Batch, advanced, is_behind, next_batch
from lambdas.logic.unread_log import UnreadLines
from trainflow.errors import TrainflowError
from trainflow.models.environment import ClusterEnvironment, DeploymentEnvironment
from trainflow.models.log_line import LogLine
from trainflow.models.run import MetricsCursor, Run
from trainflow.progress.reader import lines_apart, warning

READING_SECONDS = 30.0
"""Time for reading, of the function's 60 seconds: a request that hangs and its retry have to fit into the rest."""

LINES_BETWEEN_DEADLINE_CHECKS = 1000


class Event(BaseModel):
    run: Run
    rank0: str
    cursor: MetricsCursor


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The cursor behind the published lines, whether the end of the log was reached, and whether CloudWatch or S3 did
    not take what was read: then the next poll reads it again.

    A poll may be tried again after it has published, and a window that was stopped takes its position with it: the
    stored steps say what has been published.
    """
    unread = _unread(backends.connect(event.run.spec.compute.backend), event.rank0, event.cursor)
    lines = _until(time.monotonic() + READING_SECONDS, unread)
    cursor, batch, kept, ahead = event.cursor, None, None, event.cursor
    try:
        while batch is None or batch.is_full:
            batch = next_batch(lines, cursor, progress=event.run.spec.progress, lines_apart=lines_apart(event.run.spec))
            now = datetime.now(UTC)
            ahead = advanced(cursor, batch, log=unread.position, now=now)
            fresh = batch
            if _is_worth_keeping(batch) or _is_worth_a_warning(event.run, ahead, before=cursor):
                kept = kept or recording.kept_steps(event.run.run_id)
                if is_behind(cursor, kept.progress):
                    fresh = batch.behind(kept.progress)
                    ahead = advanced(kept.progress, fresh, log=unread.position, now=now)
                kept = kept.extended(batch.steps, kept.progress, batch.reports, batch.checkpoints)
                recording.keep(event.run.run_id, kept)
            ahead = _publish(event.run, fresh, ahead, now=now)
            cursor = ahead
            if kept is not None:
                kept = kept.extended((), cursor)
                recording.keep(event.run.run_id, kept)
    except (TrainflowError, ClientError) as error:
        if ahead is event.cursor:
            raise  # nothing could be read
        logger.warning("stopped early", extra={"error": type(error).__name__, "reason": str(error)})
        return _answer(cursor.alive_as(ahead), caught_up=False, unpublished=True)
    if unread.replaced:
        logger.warning("the log was replaced: lines between the last poll and its end were not read")
        cursor = cursor.model_copy(update={"log_rotations": cursor.log_rotations + 1})
        recording.keep(event.run.run_id, (kept or recording.kept_steps(event.run.run_id)).extended((), cursor))
    return _answer(cursor, caught_up=unread.exhausted, unpublished=False)


def _answer(cursor: MetricsCursor, *, caught_up: bool, unpublished: bool) -> dict[str, Any]:
    return {"cursor": cursor.model_dump(mode="json"), "caught_up": caught_up, "unpublished": unpublished}


def _unread(backend: Backend, pod: str, cursor: MetricsCursor) -> UnreadLines:
    position = cursor.log if cursor.log and cursor.log.pod == pod else None
    return UnreadLines(backend.read_log(pod, since=position.since if position else None), position, pod=pod)


def _until(deadline: float, lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """The lines that are read before the deadline, and a thousand in any case, so that every poll makes progress."""
    for number, line in enumerate(lines, start=1):
        yield line
        if number % LINES_BETWEEN_DEADLINE_CHECKS == 0 and time.monotonic() > deadline:
            return


def _is_worth_keeping(batch: Batch) -> bool:
    return bool(batch.steps or batch.reports or batch.checkpoints)


def _is_worth_a_warning(run: Run, cursor: MetricsCursor, *, before: MetricsCursor) -> bool:
    """Whether this poll has read the line by which a step should have been found: the record says so then."""
    said = [warning(run.spec.progress, num_lines=one.num_lines, last_step=one.last_step) for one in (before, cursor)]
    return said[0] is None and said[1] is not None


def _publish(run: Run, batch: Batch, cursor: MetricsCursor, *, now: datetime) -> MetricsCursor:
    """Publish a batch.

    Returns:
        The cursor, with the number of data points that CloudWatch does not take at their time, or not at all.
    """
    cluster, floor = read(ClusterEnvironment).cluster_name, run.spec.limits.min_throughput
    sent = metric_data.within_window(
        [
            *metric_data.of_progress(cluster, batch.steps, cursor, min_throughput=floor, now=now),
            *metric_data.of_steps(run.run_id, batch.steps, cursor.metric_names),
            *metric_data.of_reports(run.run_id, batch.reports, cursor.metric_names),
        ],
        now=now,
    )
    refused = metrics.publish(sent.data, deployment=read(DeploymentEnvironment).deployment)
    return cursor.model_copy(
        update={
            "points_moved": cursor.points_moved + sent.moved,
            "points_dropped": cursor.points_dropped + sent.dropped + refused,
        }
    )
