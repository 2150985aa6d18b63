"""Whether a training ended while it opened the checkpoint that it resumed from, so that the one before is tried.

A checkpoint of an unknown format may be cut off without a sign. The program that opens it ends with an error of its
own, and would do so at every attempt. So the error of such a job is `CheckpointUnusable`: the job is submitted again
and passes over this checkpoint (docs/decisions/0089-fall-back-to-the-checkpoint-before.md). Nothing is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from trainflow.errors import CheckpointUnusable, TrainflowError, named_error
from trainflow.failures.error_table import error_table
from trainflow.failures.judgement import Judgement
from trainflow.progress.reader import ProgressReader
from trainflow.protocol.checkpoint_line import OPENING, Opening, parse_checkpoint_line, parse_opening_line
from trainflow.protocol.step_report import ALIVE
from trainflow.record.wording import count
from trainflow.spec.run_spec import RunSpec
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import Run

MAX_UNUSABLE = 3
"""Checkpoints of one run that are passed over: where more cannot be opened, the checkpoints are not the reason."""

NOT_LOADED = ("SyntaxError", "IndentationError", "ImportError", "ModuleNotFoundError", "NameError")
"""Exceptions of programs that did not come to their checkpoint."""

_ANY_TIME = datetime(1970, 1, 1, tzinfo=UTC)


def with_checkpoint(error: TrainflowError, run: Run, logs: Iterable[Sequence[str]]) -> TrainflowError:
    """The error of a failed training, with the checkpoint that it may have failed to open.

    Args:
        error: Its error by the evidence of its pods.
        run: The run.
        logs: Last lines of the failed pods, and of rank 0.
    """
    tails = list(logs)
    opening = next((found for lines in tails if (found := _opening(lines)) is not None), None)
    if opening is None or not _may_be_the_checkpoint(error, run, opening, tails):
        return error
    if opening.before is None or len(run.failed_checkpoints.unusable) >= MAX_UNUSABLE:
        return _after_others(error, run)
    named = error_table()[type(error).__name__]
    if named.restart and run.failed_checkpoints.suspected != opening.path:
        # It may pass by itself, so the same checkpoint is tried once more.
        judgement = error.judgement or Judgement(rule=named.name)
        return named_error(named.name, str(error), replace(judgement, checkpoint=opening.path))
    sentence = (
        f"The program ended before its first step while it resumed from {opening.path}, so the next attempt resumes "
        f"from {opening.before}. {error}"
    )
    judgement = error.judgement or Judgement(rule=named.name)
    judgement = replace(judgement, node=None, checkpoint=opening.path)  # the node is innocent
    return named_error(CheckpointUnusable.__name__, sentence, judgement)


def _after_others(error: TrainflowError, run: Run) -> TrainflowError:
    """The error, which says that other checkpoints were tried before."""
    num_others = len(run.failed_checkpoints.unusable)
    if not num_others:
        return error
    sentence = f"{error} Attempts with {count(num_others, 'newer checkpoint')} ended before their first step, too."
    return named_error(type(error).__name__, sentence, error.judgement)


def _may_be_the_checkpoint(error: TrainflowError, run: Run, opening: Opening, tails: Sequence[Sequence[str]]) -> bool:
    """Whether the job ended before its first step, with an error that a damaged checkpoint may cause."""
    named = error_table().get(type(error).__name__)
    if named is None or run.spec.limits.max_restarts < 1:
        return False
    line = error.judgement.line if error.judgement is not None else ""
    if line.startswith(NOT_LOADED) or not (named.may_be_checkpoint or opening.path in line):
        return False
    return not any(_goes_on(lines, run.spec) for lines in tails)


def _opening(lines: Sequence[str]) -> Opening | None:
    found = (parse_opening_line(line) for line in reversed(lines) if OPENING in line)
    return next((opening for opening in found if opening is not None), None)


def _goes_on(lines: Sequence[str], spec: RunSpec) -> bool:
    """Whether a program has come to a step, or saved a checkpoint, or written to other files for a minute."""
    begin = max((place for place, line in enumerate(lines) if OPENING in line), default=-1)
    reader = ProgressReader(spec.progress)
    for line in lines[begin + 1 :]:
        reader.read(LogLine(_ANY_TIME, line))
        if reader.num_found or ALIVE in line or parse_checkpoint_line(line, _ANY_TIME) is not None:
            return True
    return False
