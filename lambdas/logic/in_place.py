"""Restarts that a gang makes in its pods, counted as those of the workflow are (decisions 19 and 99)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from trainflow.protocol.restart_line import Restarted, parse_restarted_line
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import InPlaceRestart, MetricsCursor

MAX_RESTARTS = 20
"""Newest restarts that are kept."""


def in_place_restart(
    said: Restarted, line: LogLine, *, last_step: int | None, last_checkpoint: int | None
) -> InPlaceRestart:
    """The restart of a line, with the progress of the run before it."""
    return InPlaceRestart(
        attempt=said.attempt,
        round=said.round,
        at=line.logged_at,
        node=said.node,
        reason=said.reason,
        last_step=last_step,
        last_checkpoint=last_checkpoint,
    )


def counted(cursor: MetricsCursor, restarts: Sequence[InPlaceRestart]) -> dict[str, Any]:
    """Fields of the cursor after restarts; those that it knows change nothing.

    Args:
        cursor: The cursor before.
        restarts: Restarts in the order of the log.
    """
    known = cursor.in_place[-1].place if cursor.in_place else (0, 0)
    new = [restart for restart in restarts if restart.place > known]
    at_step, at_checkpoint = cursor.restarted_at_step, cursor.restarted_at_checkpoint
    in_vain = cursor.restarts_in_vain
    for restart in new:
        in_vain = 1 if _has_progressed(restart, at_step, at_checkpoint) else in_vain + 1
        at_step = at_step if restart.last_step is None else restart.last_step
        at_checkpoint = at_checkpoint if restart.last_checkpoint is None else restart.last_checkpoint
    return {
        "in_place": (*cursor.in_place, *new)[-MAX_RESTARTS:],
        "restarted_at_step": at_step,
        "restarted_at_checkpoint": at_checkpoint,
        "restarts_in_vain": in_vain,
    }


def with_restarts(cursor: MetricsCursor, lines: Iterable[LogLine]) -> MetricsCursor:
    """The cursor after the restarts in the log of a pod without steps, another one than rank 0's."""
    said = ((parse_restarted_line(line.text), line) for line in lines)
    restarts = [
        in_place_restart(each, line, last_step=cursor.last_step, last_checkpoint=cursor.last_checkpoint)
        for each, line in said
        if each is not None
    ]
    return cursor.model_copy(update=counted(cursor, restarts))


def _has_progressed(restart: InPlaceRestart, at_step: int, at_checkpoint: int) -> bool:
    """Whether the run had got further than at the restart before, as state HasProgressed decides."""
    if restart.last_step is not None:
        return restart.last_step > at_step
    return restart.last_checkpoint is not None and restart.last_checkpoint > at_checkpoint
