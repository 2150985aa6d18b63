"""Publishing of rank 0's steps to CloudWatch, and storing them in S3 for the run's record.

A log may take longer than a function's time. So it is read in batches, and each is published before the next is read:
the memory does not grow with the log, and when the time is over the next poll continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, wait
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial

from botocore.exceptions import ClientError

from lambdas.backends.backend import Backend
from lambdas.gateways import metrics
from lambdas.handlers import recording
from lambdas.handlers.environment import read
from lambdas.handlers.task import logger
from lambdas.logic import metric_data
from lambdas.logic.step_metrics import Batch, advanced, is_behind, next_batch
from lambdas.logic.unread_log import UnreadLines, position_in
from trainflow.background import Worker
from trainflow.deployment.environment import ClusterEnvironment, DeploymentEnvironment
from trainflow.errors import TrainflowError
from trainflow.progress.reader import lines_apart
from trainflow.protocol.checkpoint_pattern import CheckpointPattern
from trainflow.protocol.reported_checkpoints import Reported, reported
from trainflow.record.steps import KeptSteps
from trainflow.spec.total_steps import total_steps
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import JobRef, MetricsCursor, Run, Stage

LAST_LINES_SECONDS = 125.0
"""The log of a pod that is being deleted is followed for a pod's grace period and a little more."""


OPENING_SECONDS = 10.0
"""Longest delay of a pod's deletion, and once more of the function's end, by an opened log.

The API answers at the kubelet's first line. That line does not come from a lost node, or from a silent program before
it is asked to end.
"""


@dataclass(frozen=True)
class Published:
    """Result of publishing a log."""

    cursor: MetricsCursor
    caught_up: bool
    """Whether the end of the log was reached."""
    unpublished: bool
    """Whether CloudWatch or S3 did not take what was read."""


def publish_lines(run: Run, unread: UnreadLines, lines: Iterable[LogLine], cursor: MetricsCursor) -> Published:
    """Publish the steps of lines.

    A caller may be repeated after it has published, and a window that was stopped takes its position with it: the
    stored steps say what has been published.

    Args:
        run: The run.
        unread: The unread lines of rank 0's log.
        lines: Those of them that are read now.
        cursor: Position of what has been published, as far as the caller knows.

    Raises:
        TrainflowError, ClientError: If nothing could be read.
    """
    start, batch, stored, ahead = cursor, None, None, cursor
    apart, total = lines_apart(run.spec), total_steps(run.spec.model_dump(mode="json"), cursor.first_step)
    try:
        while batch is None or batch.is_full:
            batch = next_batch(
                lines,
                cursor,
                progress=run.spec.progress,
                lines_apart=apart,
                total=total,
                is_new_log=batch is None and unread.is_new,
                reported=_checkpoint_reader(run),
            )
            now = datetime.now(UTC)
            ahead = advanced(cursor, batch, log=unread.position, now=now)
            fresh = batch
            if _is_worth_keeping(batch) or _is_worth_a_sentence(run, ahead, before=cursor):
                stored = stored or recording.stored_steps(run.run_id)
                known = stored.kept.progress
                if is_behind(cursor, known):
                    fresh = batch.behind(known)
                    unparsable = max(ahead.lines_unparsable, known.lines_unparsable)
                    ahead = advanced(known, fresh, log=unread.position, now=now)
                    ahead = ahead.model_copy(update={"lines_unparsable": unparsable})  # the lines were read again
                stored = recording.keep(run.run_id, stored, partial(_with_batch, batch=batch))
            ahead = _publish(run, fresh, ahead, now=now)
            cursor = ahead
            if stored is not None:
                stored = recording.keep(run.run_id, stored, partial(_up_to, cursor=cursor))
    except (TrainflowError, ClientError) as error:
        if ahead is start:
            raise  # nothing could be read
        logger.warning("stopped early", extra={"error": type(error).__name__, "reason": str(error)})
        return Published(_read_to(unread, cursor.alive_as(ahead)), caught_up=False, unpublished=True)
    if unread.replaced:
        logger.warning("the log was replaced: lines between the last poll and its end were not read")
        cursor = cursor.model_copy(update={"log_rotations": cursor.log_rotations + 1})
        stored = stored or recording.stored_steps(run.run_id)
        recording.keep(run.run_id, stored, partial(_up_to, cursor=cursor))
    return Published(_read_to(unread, cursor), caught_up=unread.exhausted, unpublished=False)


def _checkpoint_reader(run: Run) -> Callable[[str], Reported | None] | None:
    """Finds checkpoints that lines report; None for a spec without a pattern of theirs."""
    described = run.spec.described_checkpoint
    if described is None:
        return None
    return partial(reported, pattern=CheckpointPattern(described.path), run_id=run.run_id)


def _with_batch(kept: KeptSteps, *, batch: Batch) -> KeptSteps:
    return kept.extended(batch.steps, kept.progress, batch.checkpoints)


def _up_to(kept: KeptSteps, *, cursor: MetricsCursor) -> KeptSteps:
    """The steps with what has been published; a call that has overtaken this one may have published more."""
    return kept if is_behind(cursor, kept.progress) else kept.extended((), cursor)


def _read_to(unread: UnreadLines, cursor: MetricsCursor) -> MetricsCursor:
    """The cursor. If later lines have not been read yet, its hang counts from now on."""
    if unread.exhausted or cursor.hang is None:
        return cursor
    return cursor.model_copy(update={"hang": cursor.hang.model_copy(update={"seen_at": datetime.now(UTC)})})


def publish_last_lines(
    backend: Backend,
    run: Run,
    training: JobRef | None,
    cursor: MetricsCursor,
    delete: Callable[[], None],
    *,
    lost_pod: str | None = None,
) -> MetricsCursor:
    """Delete the pods of a run, and publish what rank 0 logs until its program has ended.

    A pod's log is deleted with the pod. So it is opened before the pods are deleted, and followed while their programs
    save their state. Nothing that goes wrong with the log prevents the deletion, or fails the function.

    Args:
        backend: Where the run's jobs are.
        run: The run.
        training: Its newest training job; None before the first.
        cursor: Position of what has been published.
        delete: Asks the programs to end, and deletes their pods.
        lost_pod: Pod of a lost node, whose log cannot be read.

    Returns:
        The position behind what was published, by this call or an earlier one.
    """
    if training is None or training.stage is not Stage.TRAINING:
        delete()
        return cursor
    opening = _in_background(lambda: _open(backend, training, cursor, lost_pod))
    wait([opening], timeout=OPENING_SECONDS)
    delete()
    try:
        if (unread := _opened(opening)) is not None:
            cursor = publish_lines(run, unread, unread, cursor).cursor
        # A call before this one may have published them, and then failed.
        stored = recording.kept_steps(run.run_id).progress
    except Exception:  # noqa: BLE001 (no error may keep the run's nodes)
        logger.exception("the last lines of rank 0 could not be published")
        return cursor
    return stored if is_behind(cursor, stored) else cursor


def _open(backend: Backend, training: JobRef, cursor: MetricsCursor, lost_pod: str | None) -> UnreadLines | None:
    try:
        pod = backend.rank0(training)
        if pod is None or pod == lost_pod:
            return None
        position = position_in(cursor, pod)
        lines = backend.follow_log(pod, since=position.since if position else None, longest_seconds=LAST_LINES_SECONDS)
        return UnreadLines(lines, position, pod=pod)
    except Exception:  # noqa: BLE001 (no error may keep the run's nodes)
        logger.exception("the last lines of rank 0 could not be read")
        return None


def _in_background(call: Callable[[], UnreadLines | None]) -> Future[UnreadLines | None]:
    """The result of a call that may not end in time; it is left behind then."""
    result: Future[UnreadLines | None] = Future()
    Worker(lambda: result.set_result(call()), name="opening", on_error=result.set_exception).start()
    return result


def _opened(opening: Future[UnreadLines | None]) -> UnreadLines | None:
    try:
        return opening.result(timeout=OPENING_SECONDS)
    except TimeoutError:
        logger.warning("the log of rank 0 was not opened in time: its node may be lost")
        return None


def _is_worth_keeping(batch: Batch) -> bool:
    return bool(
        batch.steps
        or batch.checkpoints
        or batch.num_unparsable
        or batch.lost_files
        or batch.reported_checkpoint
        or batch.restarts
    )


def _is_worth_a_sentence(run: Run, cursor: MetricsCursor, *, before: MetricsCursor) -> bool:
    """Whether the record, which is written when the log may be gone, could say more of lines without a step."""
    after, earlier = cursor.since_step, before.since_step
    has_news = (after.num_lines, after.missing) != (earlier.num_lines, earlier.missing)
    return run.spec.progress != "none" and has_news


def _publish(run: Run, batch: Batch, cursor: MetricsCursor, *, now: datetime) -> MetricsCursor:
    """Publish a batch.

    Returns:
        The cursor, with the number of data points that CloudWatch does not take at their time, or not at all.
    """
    cluster, floor = read(ClusterEnvironment).cluster_name, run.spec.limits.min_throughput
    sent = metric_data.sendable(
        [
            *metric_data.of_progress(cluster, batch.steps, cursor, min_throughput=floor, now=now),
            *metric_data.of_steps(run.run_id, batch.steps, cursor.metric_names),
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
