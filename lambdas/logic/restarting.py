"""Deletion of a failed gang, and trust in its nodes, before its job is submitted again
(docs/decisions/0107-seconds-between-a-failure-and-the-next-step.md)."""

from __future__ import annotations

from trainflow.failures.error_table import error_table
from trainflow.workflow.run import MetricsCursor

HANGING_GRACE_SECONDS = 10
"""Time between SIGTERM and SIGKILL for ranks that have lost another one: they wait for it in a collective."""

MAY_SAVE = frozenset({"JobEvicted", "JobPreempted", "JobStalled"})
"""Errors of jobs whose ranks may all be there: they have time to save their state."""

SUSPICIOUS = frozenset({"CollectiveTimeout", "JobEvicted", "JobPreempted", "JobStalled"})
"""Errors with any node as the possible reason, and those after that the gang may have other nodes, although the table
lets the job use the same ones again."""


def grace_seconds(error: str | None) -> int | None:
    """Seconds that the pods of a failed job have to end; None for their own time.

    Args:
        error: Name of the job's error; None if it has not failed.
    """
    return None if error is None or error in MAY_SAVE else HANGING_GRACE_SECONDS


def trained_soundly(error: str, progress: MetricsCursor) -> bool:
    """Whether the failed job has trained on its nodes, and its failure casts doubt on none of them.

    Args:
        error: Name of its error.
        progress: Position behind its last line, with the restart before it.
    """
    failure = error_table().get(error)
    is_suspicious = failure is None or not failure.same_node or error in SUSPICIOUS
    return not is_suspicious and _has_trained(progress)


def _has_trained(progress: MetricsCursor) -> bool:
    """Whether the job has passed the step, or the checkpoint, of the restart before it."""
    if progress.last_step is not None:
        return progress.last_step > progress.restarted_at_step
    return progress.last_checkpoint is not None and progress.last_checkpoint > progress.restarted_at_checkpoint
