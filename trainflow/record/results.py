"""Warnings about results: files that are lost or not published, and successes that differ from the spec."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from trainflow.protocol.lost_files import MAX_NAMED, LostFile, LostFiles
from trainflow.protocol.publication import BEYOND_LIMIT, SKIPPED, Unpublished, parse_unpublished
from trainflow.record.steps import KeptSteps
from trainflow.record.wording import count, duration, size
from trainflow.spec.run_spec import RunSpec
from trainflow.spec.total_steps import total_steps
from trainflow.workflow.run_record import RunStatus

NOTHING_TRAINED = (
    "The program ended without an error, and also without a step, a checkpoint or a file below {run_dir}: it may have "
    "trained nothing. Read its log."
)
"""Warning about a run that succeeded and shows no sign of training."""

KEPT_NOTHING = (
    "The program trained, and left no file below {run_dir} or in its working folder: nothing of it was "
    "published. Let it save its results there."
)
"""Warning about a run that succeeded with steps and published nothing."""

SHORT_SECONDS = 60.0
"""A gang that trains takes longer than this to start its processes and its first step."""

WITH_WARNINGS = " with warnings"
"""Words behind the status of a run that succeeded, where people read it first."""


def status_suffix(status: RunStatus, warnings: Sequence[str]) -> str:
    """The words behind a status: a success with warnings is not a plain success."""
    return WITH_WARNINGS if status is RunStatus.SUCCEEDED and warnings else ""


def lost_files_warning(found: LostFiles) -> str:
    """The sentence about files that a program left in its working folder."""
    named = [_named(file) for file in found.largest[:MAX_NAMED]]
    if more := found.num_files - len(named):
        named.append(f"{more:,} more")
    files, verb = count(found.num_files, "file"), "was" if found.num_files == 1 else "were"
    least = "At least " if found.is_partial else ""
    place = (
        "outside of {run_dir}" if any(file.name.startswith("/") for file in found.largest) else "to its working folder"
    )
    return (
        f"{least}{files} ({size(found.num_bytes)}) that the program wrote {place} {verb} not kept: "
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


def unpublished_warnings(artifacts: Mapping[str, Any], *, run_folder: str, kept_gib: int) -> list[str]:
    """Warnings about files that are not in S3.

    Args:
        artifacts: Result of publishing.
        run_folder: The run's folder on the shared file system.
        kept_gib: Limit of what is published of the working folder.
    """
    skipped, beyond = parse_unpublished(artifacts, SKIPPED), parse_unpublished(artifacts, BEYOND_LIMIT)
    found = []
    if skipped is not None:
        named = _listed((f"{file.name} ({file.reason})" for file in skipped.files), skipped)
        files, verb = count(skipped.num_files, "file"), "was" if skipped.num_files == 1 else "were"
        found.append(f"{files} {verb} not published: {named}. They stay in {run_folder} on the file system.")
    if beyond is not None:
        named = _listed((f"{file.name} ({size(file.num_bytes)})" for file in beyond.files), beyond)
        files, verb = count(beyond.num_files, "file"), "was" if beyond.num_files == 1 else "were"
        found.append(
            f"{files} ({size(beyond.num_bytes)}) of the working folder {verb} not published: {named}. They stay in "
            f"{run_folder} on the file system; workload.kept_gib is {kept_gib}, so raise it, or write them to "
            "{run_dir}."
        )
    return found


def outcome_warnings(
    status: RunStatus,
    kept: KeptSteps,
    spec: RunSpec,
    *,
    artifacts: Mapping[str, Any] | None,
    trained_steps: int | None,
    seconds: float | None,
) -> list[str]:
    """Warnings about a success that differs from what the spec announces.

    Args:
        status: How the run ended.
        kept: The steps and checkpoints that were stored.
        spec: The run spec.
        artifacts: What publishing has answered; None where nothing was published.
        trained_steps: Number of steps that the program has counted; None if it has not.
        seconds: Time from the submission of the training to its end; None if it is unknown.
    """
    if status is not RunStatus.SUCCEEDED or artifacts is None:
        return []
    reached = trained_steps or kept.progress.last_step
    if not reached:
        return _short_gang(spec, kept, artifacts, seconds)
    found = [KEPT_NOTHING] if artifacts.get("objects") == 0 and kept.progress.lost_files is None else []
    announced = total_steps(spec.model_dump(), kept.progress.first_step)
    if announced is not None and announced - reached > _steps_between_lines(kept):
        found.append(
            f"The program ended without an error at step {reached:,} of {announced:,}. If it was not to stop early, "
            "read the end of its log."
        )
    return found


def _short_gang(spec: RunSpec, kept: KeptSteps, artifacts: Mapping[str, Any], seconds: float | None) -> list[str]:
    """The warning about a gang whose processes ended at once; one that published nothing has a warning already."""
    is_gang = spec.workload.launcher != "none" and spec.compute.world_size > 1
    is_silent = kept.progress.last_step is None and not kept.checkpoints and artifacts.get("objects") != 0
    if not (is_gang and is_silent and seconds is not None and seconds < SHORT_SECONDS):
        return []
    return [
        f"The {spec.compute.world_size} processes of the gang ended after {duration(seconds)} without a step: the "
        "program may have trained nothing. Read its log."
    ]


def _steps_between_lines(kept: KeptSteps) -> int:
    """Most steps between two lines of the log: the last line may be so many before the end."""
    numbers = [step.step for step in kept.steps]
    return max((after - before for before, after in pairwise(numbers)), default=numbers[0] if numbers else 0) or 1


def _listed(named: Iterable[str], found: Unpublished) -> str:
    more = found.num_files - len(found.files)
    return ", ".join([*named, *([f"{more:,} more"] if more else [])])
