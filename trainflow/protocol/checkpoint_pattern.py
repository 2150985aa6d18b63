"""Patterns of checkpoints' paths below a run's folder: `checkpoint-{step}`, `ckpt/*.pt`, `**/checkpoint-{step}`.

`{step}` is a number, `*` any part of a name, and `**` any number of folders. A program in a pod finds the files by such
a pattern, and the functions compare it with the paths that the program's log reports.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from trainflow.protocol.placeholders import STEP

ANY_FOLDERS = "**"
"""Part of a pattern that stands for any number of folders, also for none."""

_WORD = re.compile(r"(\{step\}|\*)")
_EXPRESSIONS = {STEP: r"(?P<step>\d{1,15})", "*": "[^/]*"}


@dataclass(frozen=True)
class CheckpointPattern:
    """The pattern, as the spec has it."""

    text: str

    @cached_property
    def parts(self) -> tuple[re.Pattern[str] | None, ...]:
        """An expression for each name of the path; None for `**`."""
        return tuple(None if part == ANY_FOLDERS else _expression(part) for part in self.text.split("/"))

    def steps(self, path: str) -> tuple[int | None, ...]:
        """The step in a path that the pattern matches, in a tuple: None without `{step}`. Empty if it does not match.

        Args:
            path: Path below the run's folder, with `/` between the names.
        """
        return _matched(self.parts, tuple(path.split("/")))

    def matches_below(self, path: str) -> bool:
        """Whether the pattern matches the path or a folder that contains it."""
        names = path.split("/")
        return any(self.steps("/".join(names[:length])) for length in range(1, len(names) + 1))


def _expression(part: str) -> re.Pattern[str]:
    return re.compile("".join(_EXPRESSIONS.get(word) or re.escape(word) for word in _WORD.split(part)), re.DOTALL)


def _matched(parts: tuple[re.Pattern[str] | None, ...], names: tuple[str, ...]) -> tuple[int | None, ...]:
    """The step by a table of positions, so that several `**` cost no more than their product with the names."""
    reached: dict[int, int | None] = {0: None}
    for name in names:
        reached = advanced(parts, reached, name)
    return tuple(step for place, step in with_no_folders(parts, reached).items() if place == len(parts))


def advanced(
    parts: tuple[re.Pattern[str] | None, ...], reached: dict[int, int | None], name: str
) -> dict[int, int | None]:
    """The positions in a pattern after another name of a path, each with the step that was read on the way.

    Args:
        parts: The pattern's parts.
        reached: The positions before the name.
        name: The name.
    """
    found: dict[int, int | None] = {}
    for place, step in with_no_folders(parts, reached).items():
        if place == len(parts):
            continue
        part = parts[place]
        if part is None:
            found.setdefault(place, step)
        elif (match := part.fullmatch(name)) is not None:
            found[place + 1] = int(match["step"]) if "step" in part.groupindex else step
    return found


def with_no_folders(parts: tuple[re.Pattern[str] | None, ...], reached: dict[int, int | None]) -> dict[int, int | None]:
    """The positions, and those behind each `**` that stands for no folder."""
    found = dict(reached)
    for place in range(len(parts)):
        if place in found and parts[place] is None:
            found.setdefault(place + 1, found[place])
    return found
