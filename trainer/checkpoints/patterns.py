"""Checkpoints of any program, found by a pattern of their paths, and whether each is complete.

A program that is killed while it saves leaves files without their end (`file_formats`) and folders without some of
their files (`layouts`). Both are judged by content, so that a half-written checkpoint is passed over and the one before
is taken (docs/decisions/0075-checkpoint-completeness-by-content.md). Nothing here needs torch.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from trainer.checkpoints import file_formats, layouts
from trainflow.protocol.placeholders import STEP

TEXTS = (".json", ".yaml", ".yml", ".txt", ".md", ".py", ".toml", ".csv", ".log", ".jinja")
"""Endings of files that lie beside the weights and whose end proves nothing about these."""


LAST_FILE_MISSING = (
    "it holds what libraries write first, and not their last file (of transformers' Trainer trainer_state.json, of "
    "accelerate random_states_0.pkl); if the program writes no other files, name one that it writes last in "
    "checkpoint.marker"
)


class State(Enum):
    """Completeness of a checkpoint, as far as it can be seen in it."""

    COMPLETE = "complete"
    INCOMPLETE = "incomplete"
    WITHOUT_LAST_FILE = "without the last file"
    """Only what libraries write before their last file: cut off, or of a program that writes no more than this."""


@dataclass(frozen=True)
class Verdict:
    """The state of a checkpoint, and the reason as a clause."""

    state: State
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class Rules:
    """Rules for judging whether a checkpoint is complete."""

    marker: str | None = None
    """Name of a file that only a complete folder has; None to check the formats."""
    settled_seconds: float = 0.0
    """Seconds without a change before a checkpoint of an unknown format counts as complete."""
    now: float = float("inf")
    """Present time of the file system's clock, in seconds since 1970; the default is for a program that has ended."""


@dataclass(frozen=True)
class Found:
    """A path that the pattern matches."""

    path: Path
    step: int | None
    """Number in the path; None for a pattern without one."""

    @property
    def number(self) -> int:
        """A number that is higher for a newer checkpoint: the step, or the second of the last change."""
        return int(_changed_at(self.path)) if self.step is None else self.step


def find(pattern: str, folder: Path) -> list[Found]:
    """The checkpoints below a folder, the newest first.

    Args:
        pattern: Path below the folder; `{step}` is a number, `*` any part of a name.
        folder: The run's folder.
    """
    words = {STEP: r"(?P<step>\d+)", "*": "[^/]*"}
    expression = re.compile("".join(words.get(part) or re.escape(part) for part in re.split(r"(\{step\}|\*)", pattern)))
    found = []
    for path in folder.glob(re.sub(r"([\[?])", r"[\1]", pattern.replace(STEP, "*"))):
        match = expression.fullmatch(path.relative_to(folder).as_posix())
        if match is not None:
            found.append(Found(path, int(match["step"]) if STEP in pattern else None))
    return sorted(found, key=lambda each: (each.step or 0, _changed_at(each.path)), reverse=True)


def newest_complete(found: Sequence[Found], rules: Rules) -> tuple[Found | None, list[tuple[Found, str]]]:
    """The newest complete checkpoint, and the newer ones that are passed over, each with the reason.

    Args:
        found: Checkpoints of one program, the newest first.
        rules: How they are judged.
    """
    passed_over: list[tuple[Found, str]] = []
    for number, each in enumerate(found):
        verdict = judged(each.path, rules)
        if verdict.state is State.WITHOUT_LAST_FILE and _has_all_that_others_have(number, found, rules):
            return each, passed_over
        if verdict.state is State.COMPLETE:
            return each, passed_over
        passed_over.append((each, verdict.reason))
    return None, passed_over


def is_complete(path: Path, *, marker: str | None, settled_seconds: float, now: float) -> bool:
    """Whether a checkpoint is complete, judged without others of its program.

    Args:
        path: A file or a folder.
        marker: Name of a file that only a complete folder has; None to check the formats.
        settled_seconds: Seconds without a change before an unknown format counts as complete.
        now: Present time of the file system's clock, in seconds since 1970.
    """
    return judged(path, Rules(marker=marker, settled_seconds=settled_seconds, now=now)).state is State.COMPLETE


def judged(path: Path, rules: Rules) -> Verdict:
    """Judge a checkpoint, a file or a folder, by its content."""
    try:
        if rules.marker is not None:
            return _judged_by_marker(path, rules.marker)
        inside = sorted(path.rglob("*")) if path.is_dir() else []
        formats = {file: file_formats.is_whole(file) for file in (path, *inside) if file.is_file()}
        reason = _what_is_wrong(path, inside, formats)
        if reason is not None:
            return Verdict(State.INCOMPLETE, reason)
        if path.is_dir() and layouts.lacks_its_last_file(path):
            return Verdict(State.WITHOUT_LAST_FILE, LAST_FILE_MISSING)
        return _judged_by_age(path, formats, rules)
    except OSError as error:  # it is being removed or replaced
        return Verdict(State.INCOMPLETE, f"it cannot be read ({error})")


def _judged_by_marker(path: Path, marker: str) -> Verdict:
    """The file that the spec names decides; it has to be whole itself, if its format is known."""
    file = path / marker
    if not file.is_file():
        return Verdict(State.INCOMPLETE, f"it has no {marker}")
    if file_formats.is_whole(file) is False:
        return Verdict(State.INCOMPLETE, f"its {marker} ends too early")
    return Verdict(State.COMPLETE)


def _what_is_wrong(path: Path, inside: Sequence[Path], formats: Mapping[Path, bool | None]) -> str | None:
    """The reason why a checkpoint is not complete, as a clause; None if nothing shows one."""
    if layouts.UNFINISHED.search(path.name):
        return "its name is that of an unfinished one"
    if not any(file.stat().st_size for file in formats):
        return "it is empty"
    cut_off = next((file for file, is_whole in formats.items() if is_whole is False), None)
    if cut_off is not None:
        return f"{'it' if cut_off == path else cut_off.relative_to(path)} ends too early"
    return layouts.what_is_missing(path, inside)


def _judged_by_age(path: Path, formats: Mapping[Path, bool | None], rules: Rules) -> Verdict:
    """A checkpoint whose data have a known format is complete; another one, once it has not changed for a while."""
    data = {file: is_whole for file, is_whole in formats.items() if file.suffix not in TEXTS}
    if any((data or formats).values()):
        return Verdict(State.COMPLETE)
    if rules.now - max(map(_changed_at, [path, *formats])) >= rules.settled_seconds:
        return Verdict(State.COMPLETE)
    return Verdict(State.INCOMPLETE, f"its format is not known, and it changed within {rules.settled_seconds:g} s")


def _has_all_that_others_have(number: int, found: Sequence[Found], rules: Rules) -> bool:
    """Whether a checkpoint without a last file is complete by comparison: its program never writes more.

    A later checkpoint shows that this one was finished, and an earlier one with the same names that these are all. One
    with a last file shows that the program writes it.
    """
    others = [each for each in found if each != found[number]]
    states = {each: judged(each.path, rules).state for each in others}
    if State.COMPLETE in states.values():
        return False
    own = layouts.kinds(found[number].path)
    peers = [each for each, state in states.items() if state is State.WITHOUT_LAST_FILE]
    return any(own >= layouts.kinds(each.path) for each in peers if found.index(each) < number) or any(
        own == layouts.kinds(each.path) for each in peers
    )


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
