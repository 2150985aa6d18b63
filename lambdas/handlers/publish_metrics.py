"""Task states `PublishMetrics` and `PublishLastMetrics`: publish rank 0's new steps, and store them for the record."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from pydantic import BaseModel

from lambdas.handlers import backends, recording
from lambdas.handlers.publishing import publish_lines
from lambdas.handlers.task import task
from lambdas.logic.in_place import with_restarts
from lambdas.logic.unread_log import UnreadLines, position_in
from trainflow.failures.log_lines import MAX_LINES
from trainflow.record.failure import caught_error
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import MetricsCursor, Run

READING_SECONDS = 30.0
"""Time for reading, of the function's 60 seconds: a request that hangs and its retry have to fit into the rest."""

LINES_BETWEEN_DEADLINE_CHECKS = 1000


class Event(BaseModel):
    run: Run
    rank0: str
    cursor: MetricsCursor
    error: dict[str, Any] | None = None
    """Error of a job that has failed."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The cursor behind the published lines, whether the end of the log was reached, and whether CloudWatch or S3 did
    not take what was read: then the next poll reads it again."""
    backend = backends.connect(event.run.spec.compute.backend)
    rank0 = backend.present_rank0(event.run.run_id, event.rank0)
    position = position_in(event.cursor, rank0)
    unread = UnreadLines(backend.read_log(rank0, since=position.since if position else None), position, pod=rank0)
    published = publish_lines(event.run, unread, _until(time.monotonic() + READING_SECONDS, unread), event.cursor)
    cursor = published.cursor
    if event.error is not None and (failed := caught_error(event.error).pod) is not None:
        cursor = _with_restarts(event.run, cursor, backend.read_log(failed, tail_lines=MAX_LINES))
    return {
        "cursor": cursor.model_dump(mode="json"),
        "caught_up": published.caught_up,
        "unpublished": published.unpublished,
    }


def _with_restarts(run: Run, cursor: MetricsCursor, failed: Iterable[LogLine]) -> MetricsCursor:
    """The cursor with restarts in the pods that rank 0's log has not shown.

    When a pod fails, Kubernetes may delete that of rank 0 at once. Every pod prints the restarts of its gang.
    """
    counted = with_restarts(cursor, failed)
    if counted != cursor:
        recording.keep(run.run_id, recording.stored_steps(run.run_id), lambda kept: replace(kept, progress=counted))
    return counted


def _until(deadline: float, lines: Iterable[LogLine]) -> Iterator[LogLine]:
    """The lines that are read before the deadline, and a thousand in any case, so that every poll makes progress."""
    for number, line in enumerate(lines, start=1):
        yield line
        if number % LINES_BETWEEN_DEADLINE_CHECKS == 0 and time.monotonic() > deadline:
            return
