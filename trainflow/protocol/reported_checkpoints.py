"""Checkpoints that a program's log reports, compared with the pattern that the spec has for them.

Libraries say where they save: `Saving model checkpoint to out/checkpoint-10`, `saved weights at '/runs/a/ep1.pt'`. If
the pattern does not match such a path, a restarted program is not given its newest checkpoint, and nothing else shows
that before the restart.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from trainflow.protocol.checkpoint_pattern import ANY_FOLDERS, CheckpointPattern
from trainflow.protocol.placeholders import STEP

CLUES = ("sav", "wr", "dump", "stor", "checkpoint")
"""Parts of words in lower case: each line about a saved checkpoint has one."""

LONGEST_LINE = 2000
"""Characters of a line that are read."""

MAX_PATH = 300
"""Longest path that is taken for one."""

_SAVES = re.compile(r"\b(?:sav(?:e|ed|es|ing)|writ(?:e|es|ing|ten)|wrote|dump(?:ed|ing)|stor(?:ed|ing)|checkpointed)\b")
_CHECKPOINT = re.compile(r"checkpoint|ckpt|snapshot|\bmodel\b|\bweights\b|\bstates?\b|\bparameters\b")
_PATH = re.compile(r"'([^']{1,300})'|\"([^\"]{1,300})\"|`([^`]{1,300})`|([^\s'\"`,;()\[\]{}<>|]{1,300})")
_OTHER_FILES = re.compile(r"\.(?:json|jsonl|txt|log|csv|ya?ml|toml|png|html|md|py|model|tsv|pdf|jpg)$", re.IGNORECASE)
_NUMBERED = re.compile(r"\d")
_ENDING = re.compile(r"\.[A-Za-z]\w{0,11}$")
_LETTER = re.compile(r"[^\W\d_]")


@dataclass(frozen=True)
class Reported:
    """A checkpoint that a line reports."""

    path: str
    """Its path below the run's folder; as the line has it, if it is elsewhere."""
    is_below: bool
    """Whether it is below the run's folder."""
    is_matched: bool
    """Whether the spec's pattern matches it, a folder that contains it, or something inside of it."""


def reported(line: str, pattern: CheckpointPattern, run_id: str) -> Reported | None:
    """The checkpoint that a line reports; None for other lines.

    Args:
        line: A line of the log.
        pattern: The spec's pattern.
        run_id: The run, whose folder has the same name.
    """
    text = line[:LONGEST_LINE]
    words = text.lower()
    saves = _SAVES.search(words)
    if saves is None or _CHECKPOINT.search(words) is None:
        return None
    path = next((found for found in map(_path, _PATH.finditer(text)) if found), None)
    if path is None:
        return None
    _, is_below, below = f"/{path}/".rpartition(f"/{run_id}/")
    below = below.rstrip("/")
    if not is_below:
        return Reported(path, is_below=False, is_matched=False)
    return Reported(below, is_below=True, is_matched=pattern.matches_below(below) or _may_contain(below, pattern))


def _path(found: re.Match[str]) -> str | None:
    """A path to a checkpoint: with a folder, and a number in it, or an ending that is not another file's."""
    text = next(filter(None, found.groups()), "").rstrip(".:!").rstrip("/")
    if "/" not in text.strip("/") or "://" in text or _OTHER_FILES.search(text) or not _LETTER.search(text):
        return None
    name = text.rpartition("/")[2]
    return text if _NUMBERED.search(name) or _CHECKPOINT.search(name.lower()) or "." in name.lstrip(".") else None


def _may_contain(below: str, pattern: CheckpointPattern) -> bool:
    """Whether the path may be a folder of checkpoints: a library that names only the folder says nothing of these."""
    return not below or len(pattern.text.split("/")) > len(below.split("/"))


def newer(before: Reported | None, after: Reported | None) -> Reported | None:
    """The report that counts: one that the pattern matches shows that checkpoints are found, whatever else is saved.

    Of the others the first one counts, so that a warning is the same for all checkpoints, and the model that a program
    saves at its end does not take their place.
    """
    if before is None or after is None:
        return before or after
    return max((before, after), key=lambda each: (each.is_matched, each.is_below))


def unmatched_warning(found: Reported | None, pattern: str) -> str | None:
    """The sentence for people about a reported checkpoint that is not found; None if none is reported, or it is found.

    Args:
        found: The report that counts.
        pattern: The spec's pattern.
    """
    if found is None or found.is_matched:
        return None
    checkpoint = found.path
    if not found.is_below:
        return (
            f"The log reports a checkpoint at {checkpoint}, which is not below the run's folder: a restarted program "
            "is not given it. Let the program save below {run_dir}."
        )
    proposed = proposal(checkpoint, pattern)
    advice = f"set checkpoint.path to '{proposed}'" if proposed else "correct checkpoint.path"
    return (
        f"The log reports the checkpoint {checkpoint}, which checkpoint.path '{pattern}' does not match: a restarted "
        f"program begins without it; {advice}."
    )


def proposal(checkpoint: str, pattern: str) -> str | None:
    """A pattern that matches a checkpoint, and others of the program; None if none is known to.

    Args:
        checkpoint: Path below the run's folder.
        pattern: The pattern that does not match it.
    """
    last, names = pattern.rpartition("/")[2], checkpoint.split("/")
    numbered = (_with_step(name) for name in reversed(names))
    candidates = [last, *(name for name in numbered if name), names[-1]]
    patterns = (f"{ANY_FOLDERS}/{each}" if len(names) > 1 else each for each in candidates)
    return next((each for each in patterns if CheckpointPattern(each).matches_below(checkpoint)), None)


def _with_step(name: str) -> str | None:
    """A name with its last number as the step, where those before it, of epochs, may be any; None without a number.

    Numbers in the ending, as in `.h5`, do not count.
    """
    ending = _ENDING.search(name)
    stem, suffix = (name[: ending.start()], ending[0]) if ending else (name, "")
    before, number, after = ([*re.split(r"(\d+)(?=\D*$)", stem, maxsplit=1), "", ""])[:3]
    return f"{re.sub('[0-9]+', '*', before)}{STEP}{after}{suffix}" if number else None
