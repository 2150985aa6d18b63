"""Warnings about runs that end without an error and keep nothing of their work."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trainflow.protocol.lost_files import MAX_NAMED, LostFile, LostFiles
from trainflow.record.steps import KeptSteps
from trainflow.record.wording import count, size
from trainflow.workflow.run_record import RunStatus

NOTHING_TRAINED = (
    "The program ended without an error, and also without a step, a checkpoint or a file below {run_dir}: it may have "
    "trained nothing. Read its log."
)
"""Warning about a run that succeeded and shows no sign of training."""


def lost_files_warning(found: LostFiles) -> str:
    """The sentence about files that a program left in its working folder."""
    named = [_named(file) for file in found.largest[:MAX_NAMED]]
    if more := found.num_files - len(named):
        named.append(f"{more:,} more")
    files, verb = count(found.num_files, "file"), "was" if found.num_files == 1 else "were"
    least = "At least " if found.is_partial else ""
    return (
        f"{least}{files} ({size(found.num_bytes)}) that the program wrote to its working folder {verb} not kept: "
        f"{', '.join(named)}. Write results below {{run_dir}}."
    )


def _named(file: LostFile) -> str:
    on_nodes = f" on {file.num_nodes} nodes" if file.num_nodes > 1 else ""
    return f"{file.name} ({size(file.num_bytes)}{on_nodes})"


def result_warnings(
    status: RunStatus, kept: KeptSteps, *, artifacts: Mapping[str, Any] | None, trained_steps: int | None
) -> list[str]:
    """Warnings about results of a run that are lost, or that it never had.

    Args:
        status: How the run ended.
        kept: The steps and checkpoints that were stored.
        artifacts: What publishing has answered; None where nothing was published.
        trained_steps: Number of steps that the program has counted; None if it has not.
    """
    if kept.progress.lost_files is not None:
        return [lost_files_warning(kept.progress.lost_files)]
    has_trained = kept.progress.last_step is not None or bool(trained_steps) or bool(kept.checkpoints)
    published_nothing = artifacts is not None and artifacts.get("objects") == 0
    if status is RunStatus.SUCCEEDED and published_nothing and not has_trained:
        return [NOTHING_TRAINED]
    return []
