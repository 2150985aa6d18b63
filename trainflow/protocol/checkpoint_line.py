"""The line that a program prints when a checkpoint is complete, in a line of JSON:

    [0]:{"trainflow_checkpoint": {"step": 40, "bytes": 1048576}}

It ends the line, as the report of a step does (`step_report`). The time of the line is the time of the checkpoint.

A job that begins with a checkpoint prints which one, before its program starts (`trainer.steps.resume`):

    {"trainflow_resumed": {"checkpoint": 40}}

It also prints the paths of this checkpoint and of the one before, which the next job takes if the program cannot open
this one:

    {"trainflow_opening": {"path": "/runs/llm-1/checkpoint-40", "before": "/runs/llm-1/checkpoint-30"}}

transformers' Trainer has a line of its own (`Trainer._save`, with `log_level: info`). It prints it before it writes, so
a program that is killed meanwhile has reported an incomplete checkpoint.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import datetime

from trainflow.protocol.metric_aliases import whole

CHECKPOINT = "trainflow_checkpoint"
"""Key of the JSON object in the line. `trainflow.protocol.report` repeats it, since it imports nothing of ours."""

RESUMED = "trainflow_resumed"
"""Key of the JSON object in a job's line about the checkpoint that it resumes from."""

OPENING = "trainflow_opening"
"""Key of the JSON object in a job's line about the path of that checkpoint."""

HUGGING_FACE = "Saving model checkpoint to "
"""Begin of the line of transformers' Trainer."""

MAX_PATH = 1000
"""Characters of a path that are kept."""

_BEGIN = f'{{"{CHECKPOINT}":'
_RESUMED_BEGIN = f'{{"{RESUMED}":'
_HUGGING_FACE = re.compile(rf"{HUGGING_FACE}\S*checkpoint-(\d{{1,15}})\b")


@dataclass(frozen=True, kw_only=True)
class CheckpointReport:
    """A checkpoint that a program has written."""

    step: int
    """Number of the last completed step."""
    num_bytes: int | None
    """Size of all its files; None where the program does not say it."""
    saved_at: datetime
    """Time of the line."""


def checkpoint_line(step: int, *, num_bytes: int | None = None) -> str:
    """The line about a checkpoint."""
    said = {"step": step} if num_bytes is None else {"step": step, "bytes": num_bytes}
    return json.dumps({CHECKPOINT: said})


def parse_checkpoint_line(line: str, printed_at: datetime) -> CheckpointReport | None:
    """The checkpoint in a log line, or None if it is another line."""
    begin = line.find(_BEGIN)
    if begin < 0:
        found = _HUGGING_FACE.search(line)
        return CheckpointReport(step=int(found[1]), num_bytes=None, saved_at=printed_at) if found else None
    try:
        said = json.loads(line[begin:])[CHECKPOINT]
        step, num_bytes = _whole(said["step"]), _whole(said.get("bytes"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    return None if step is None else CheckpointReport(step=step, num_bytes=num_bytes, saved_at=printed_at)


def resumed_line(number: int) -> str:
    """The line about the checkpoint that a job resumes from.

    Args:
        number: Of two checkpoints of a run, the newer one has the higher number.
    """
    return json.dumps({RESUMED: {"checkpoint": number}})


def parse_resumed_line(line: str) -> int | None:
    """The number of the checkpoint in a log line, or None if it is another line."""
    begin = line.find(_RESUMED_BEGIN)
    if begin < 0:
        return None
    try:
        return _whole(json.loads(line[begin:])[RESUMED]["checkpoint"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


@dataclass(frozen=True, kw_only=True)
class Opening:
    """The checkpoint that a job's program is about to open."""

    path: str
    before: str | None
    """The complete checkpoint before it; None without another one."""


def opening_line(opening: Opening) -> str:
    """The line about the checkpoint that a program is about to open."""
    return json.dumps({OPENING: {"path": opening.path, "before": opening.before}})


def parse_opening_line(line: str) -> Opening | None:
    """The checkpoint in a log line, or None if it is another line."""
    begin = line.find(f'{{"{OPENING}":')
    if begin < 0:
        return None
    try:
        said = json.loads(line[begin:])[OPENING]
        path, before = said["path"], said["before"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not isinstance(path, str) or not isinstance(before, str | None):
        return None
    return Opening(path=path[:MAX_PATH], before=before and before[:MAX_PATH])


def _whole(value: object) -> int | None:
    return whole(value) if isinstance(value, int | float) else None
