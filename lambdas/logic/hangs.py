"""Hangs by a run's own rhythm and by the stacks of its ranks (docs/decisions/0095-evidence-of-a-hang.md)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from lambdas.logic.departures import PodEvidence
from trainflow.errors import JobStalled, TrainflowError, named_error
from trainflow.failures.judgement import Judgement
from trainflow.failures.standstill import Standstill, standstill
from trainflow.observed.job import JobStatus
from trainflow.protocol.ended_ranks import LINE
from trainflow.protocol.stacks import NodeStacks, newest_stacks
from trainflow.record.wording import duration
from trainflow.workflow.run import HungAt, JobRef, MetricsCursor, Stage

MIN_SILENCE = timedelta(minutes=2)
"""Shortest time without a sign of life after that stacks are looked for."""

USUAL_INTERVALS = 20
"""Steps that fail to appear at the usual interval until then."""

LONGEST_PAUSES = 2
"""The same as a multiple of the longest pause so far, such as for an evaluation or a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class StillGang:
    """The nodes of a gang whose ranks stand still."""

    found: Standstill
    pod: str | None
    """The pod of the rank behind; None if no rank is behind."""
    is_complete: bool
    """Whether it is certain that no rank goes on that the others may wait for."""


def usual_interval(progress: MetricsCursor) -> timedelta | None:
    """Mean time between two steps that were read; None before the third."""
    begin, newest = progress.first_step_at, progress.progressed_at
    if begin is None or newest is None or progress.datapoints < 3:
        return None
    return (newest - begin) / (progress.datapoints - 1)


def breaks_rhythm(job: JobRef, status: JobStatus, progress: MetricsCursor, *, now: datetime) -> bool:
    """Whether a training that has logged steps has shown no sign of life for far longer than it usually does."""
    usual = usual_interval(progress)
    if job.stage is not Stage.TRAINING or job.elastic or usual is None or not _has_steps(status, progress):
        return False
    newest = max(filter(None, (progress.progressed_at, progress.changed_at, status.started_at)))
    pauses = timedelta(seconds=LONGEST_PAUSES * progress.longest_pause_seconds)
    return now - newest >= max(MIN_SILENCE, USUAL_INTERVALS * usual, pauses)


def still_gang(job: JobRef, pods: Sequence[PodEvidence]) -> StillGang | None:
    """The gang whose ranks stand still by the stacks in its logs; None if a rank of a running pod may go on.

    A pod whose ranks have all ended cannot go on.

    Args:
        job: The job.
        pods: Its pods with the last lines of their logs; may be short.
    """
    running = [each for each in pods if each.pod.exit_code is None and LINE not in each.lines]
    reports = {each.pod.name: newest_stacks(each.lines) for each in running}
    nodes = [stacks for stacks in reports.values() if stacks is not None]
    found = standstill(nodes)
    if found is None or len(nodes) < len(running):
        return None
    pod = next((name for name, stacks in reports.items() if stacks is not None and _has_any(stacks, found.ranks)), None)
    return StillGang(found=found, pod=pod, is_complete=bool(found.ranks) or len(pods) >= job.num_nodes)


def hang_by_rhythm(job: JobRef, progress: MetricsCursor, *, now: datetime) -> JobStalled:
    """The error of a job that has broken its rhythm, without the sentence about its ranks."""
    usual, newest = usual_interval(progress) or timedelta(), progress.progressed_at or now
    return JobStalled(
        f"The job '{job.name}' has logged no step after {progress.last_step} for "
        f"{duration((now - newest).total_seconds())}; until then one came every "
        f"{duration(usual.total_seconds())}."
    )


def with_standstill(error: TrainflowError, gang: StillGang | None) -> TrainflowError:
    """The error with the rank that holds up the others. Its place is the line that decided, unless the log has one."""
    if gang is None:
        return error
    judgement = error.judgement or Judgement(rule="hang", line=gang.found.place, pod=gang.pod)
    return named_error(type(error).__name__, f"{error} {gang.found.sentence}", judgement)


def repeated(
    error: TrainflowError, gang: StillGang | None, status: JobStatus, progress: MetricsCursor
) -> TrainflowError:
    """The error of a job that hangs as its attempt before did: at the same step and place, the program is at fault.

    Without the stacks of one of the attempts, the step decides.
    """
    before, place = progress.hung_at, gang.found.place if gang is not None else ""
    if before is None or not isinstance(error, JobStalled):
        return error
    is_certain = _has_steps(status, progress) or (gang is not None and bool(gang.found.ranks))
    is_elsewhere = before.step != progress.last_step or (before.place and place and before.place != place)
    if is_elsewhere or not is_certain:
        return error
    after = "before its first step" if before.step is None else f"after step {before.step}"
    sentence = f"Two attempts in a row have stopped {after}" + (f" at {place}" if place else "")
    return named_error("ProgramHangs", f"{sentence}. {error}", error.judgement)


def hung_at(error: str, place: str, progress: MetricsCursor) -> HungAt | None:
    """The place of a hang for the next attempt; None for other errors.

    Args:
        error: Name of the error of the attempt that ends.
        place: Line of its judgement.
        progress: Its progress.
    """
    return HungAt(step=progress.last_step, place=place) if error == JobStalled.__name__ else None


def _has_steps(status: JobStatus, progress: MetricsCursor) -> bool:
    """Whether the job has logged a step since it started, new or repeated."""
    return (
        progress.progressed_at is not None
        and status.started_at is not None
        and progress.progressed_at > status.started_at
    )


def _has_any(stacks: NodeStacks, ranks: Sequence[int]) -> bool:
    first = stacks.node * stacks.processes
    known = {rank for group in stacks.groups for rank in group.ranks}
    return any(rank in known or first <= rank < first + stacks.processes for rank in ranks)
