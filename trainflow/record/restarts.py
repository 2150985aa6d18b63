"""The restarts of a run: the jobs that failed and were submitted again, with the reason of each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from trainflow.errors import CheckpointUnusable, WorkerFailed
from trainflow.nodes.failed_nodes import refutation
from trainflow.protocol import variables
from trainflow.protocol.placeholders import STEP
from trainflow.record.failure import caught_error
from trainflow.record.history import ExecutionHistory, TaskOutput, task_outputs
from trainflow.workflow.restart import Restart
from trainflow.workflow.run import Ignored

if TYPE_CHECKING:
    from trainflow.workflow.run import InPlaceRestart, StepsAgain

WATCHERS = {"WatchPrecompile": "precompile", "WatchTraining": "training"}
"""States that watch a job, with its stage."""

DELETION = "DeleteJob"
"""State that every restart passes once."""


def restarts(history: ExecutionHistory) -> list[Restart]:
    """The restarts of a run in their order; a job whose failure ended the run is left out.

    Args:
        history: The run's own execution.
    """
    found: list[Restart] = []
    failed: TaskOutput | None = None
    for task in task_outputs(history):
        if task.state in WATCHERS:
            failed = task
        elif task.state == DELETION and failed is not None:
            found.append(_restart(failed, attempt=len(found) + 1))
    return found


def all_restarts(
    restarted: Iterable[Restart], in_place: Iterable[InPlaceRestart], steps_again: Sequence[StepsAgain] = ()
) -> list[Restart]:
    """All restarts of a run in the order of time, each with the first step after it.

    Args:
        restarted: Those by the workflow.
        in_place: Those in the pods.
        steps_again: Places where the program went back to a step.
    """
    in_pods = (
        Restart(
            stage="training",
            attempt=each.attempt,
            at=each.at,
            error=WorkerFailed.__name__,
            message=f"The program was ended on node {each.node} by {each.reason}. It was started again in its pods.",
            rule="in_place",
            last_step=each.last_step,
            in_place=True,
        )
        for each in in_place
    )
    found = sorted([*restarted, *in_pods], key=lambda restart: restart.at)
    ends = (restart.at for restart in found[1:])
    return [_with_next_step(restart, end, steps_again) for restart, end in zip_longest(found, ends)]


def _with_next_step(restart: Restart, end: datetime | None, steps_again: Sequence[StepsAgain]) -> Restart:
    """The restart with the first step before the next restart, if it is one that was logged before."""
    later = (each for each in steps_again if each.at >= restart.at and (end is None or each.at < end))
    found = next(later, None)
    return restart if found is None else replace(restart, last_step=found.newest_step, next_step=found.first_step)


def avoided_nodes(history: ExecutionHistory) -> tuple[str, ...]:
    """The nodes that a run avoids: after its newest restart, or after it asked for nodes again, which may have shown
    that it has to use some of them.

    Args:
        history: The run's own execution.
    """
    avoided: Any = ()
    for task in task_outputs(history):
        if task.state == "EnsureCapacity":
            avoided = task.fields.get("avoided_nodes")
        elif task.state == DELETION:
            avoided = _object(_object(task.fields.get("run")).get("failed_nodes")).get("avoided")
    return tuple(name for name in avoided if isinstance(name, str)) if isinstance(avoided, list) else ()


def restart_warnings(history: ExecutionHistory) -> list[str]:
    """Warnings for the owner that follow from the restarts of a run."""
    nodes = refuting_nodes(history)
    unusable = [each.checkpoint for each in restarts(history) if each.error == CheckpointUnusable.__name__]
    return [*([refutation(nodes)] if nodes else []), *(unusable_warning(path) for path in unusable if path)]


def ignored_warning(ignored: Ignored | None, pattern: str) -> str | None:
    """The sentence for people about a checkpoint that a program seems to have ignored; None without one.

    Args:
        ignored: The checkpoint, and the program's first step.
        pattern: The spec's pattern. Without `{step}` the checkpoint's number is a time, which no step is compared with.
    """
    if ignored is None or STEP not in pattern:
        return None
    return (
        f"The program was given the checkpoint of step {ignored.checkpoint}, but the first step that it logged then "
        f"was {ignored.step}: it did not continue from this checkpoint, or counts its steps anew. Name its flag "
        f"in checkpoint.resume, or let it read {variables.CHECKPOINT}."
    )


def unusable_warning(checkpoint: str) -> str:
    """The sentence for people about a checkpoint that a program could not open."""
    return (
        f"The program ended before its first step while it resumed from {checkpoint}, so the run went on from the "
        "checkpoint before. The unusable one is kept; if it was cut off, name a file that the program writes last in "
        "checkpoint.marker."
    )


def refuting_nodes(history: ExecutionHistory) -> tuple[str, ...]:
    """The nodes that the test before the training named in attempts in a row; empty while the test is not refuted.

    Args:
        history: The run's own execution.
    """
    deletions = [task for task in task_outputs(history) if task.state == DELETION]
    failed = _object(_object(deletions[-1].fields.get("run")).get("failed_nodes")) if deletions else {}
    nodes = failed.get("test_refuted_by")
    return tuple(name for name in nodes if isinstance(name, str)) if isinstance(nodes, list) else ()


def _restart(failed: TaskOutput, *, attempt: int) -> Restart:
    answer = _object(failed.fields.get("Output"))
    error, step = caught_error(_object(answer.get("error"))), _object(answer.get("progress")).get("last_step")
    return Restart(
        stage=WATCHERS[failed.state],
        attempt=attempt,
        at=failed.at,
        error=error.name,
        message=error.message,
        rule=error.rule,
        node=error.node,
        checkpoint=error.checkpoint,
        last_step=step if isinstance(step, int) else None,
    )


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
