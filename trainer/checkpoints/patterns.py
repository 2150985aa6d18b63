"""Checkpoints of any program, found by a pattern of their paths, and whether each is complete.

A program that is killed while it saves leaves files without their end (`file_formats`) and folders without some of
their files (`layouts`). Both are judged by content, so that a half-written checkpoint is passed over and the one before
is taken (docs/decisions/0075-checkpoint-completeness-by-content.md). Nothing here needs torch.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from trainer.checkpoints import file_formats, layouts, peers, walking
from trainflow.protocol.checkpoint_pattern import CheckpointPattern
from trainflow.protocol.resume_bounds import ResumeBound


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
    may_be_cut_off: bool = False
    """Whether the program may have been killed, so that the newest checkpoint is compared with the ones before."""


@dataclass(frozen=True)
class Found:
    """A path that the pattern matches; of a link, the path behind it."""

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
        pattern: Path below the folder; `{step}` is a number, `*` any part of a name, `**` any folders.
        folder: The run's folder.
    """
    found = dict.fromkeys(
        Found(_behind_links(path, folder), step) for path, step in walking.matching(CheckpointPattern(pattern), folder)
    )
    return sorted(found, key=lambda each: (each.step or 0, _changed_at(each.path)), reverse=True)


def divided(found: Sequence[Found], bound: ResumeBound | None) -> tuple[list[Found], list[Found]]:
    """The checkpoints within a bound, and those that are newer."""
    within: list[Found] = []
    beyond: list[Found] = []
    for each in found:
        is_beyond = bound is not None and bound.excludes(each.step, changed_at(each.path))
        (beyond if is_beyond else within).append(each)
    return within, beyond


def complete_ones(found: Sequence[Found], rules: Rules) -> Iterator[tuple[Found, str | None]]:
    """Checkpoints, each with None if it is complete, or the reason why it is passed over. They are judged one by one.

    Args:
        found: Checkpoints of one program, the newest first.
        rules: How they are judged.
    """
    verdict_on = functools.cache(lambda path: judged(path, rules))
    for number, each in enumerate(found):
        verdict = verdict_on(each.path)
        reason: str | None = verdict.reason
        if verdict.state is State.WITHOUT_LAST_FILE and _has_all_that_others_have(number, found, verdict_on):
            reason = None
        reason = reason or None
        if reason is None and number == 0 and rules.may_be_cut_off and rules.marker is None:
            reason = _difference_from_others(found)
        yield each, reason


def newest_complete(found: Sequence[Found], rules: Rules) -> tuple[Found | None, list[tuple[Found, str]]]:
    """The newest complete checkpoint, and the newer ones that are passed over, each with the reason.

    Args:
        found: Checkpoints of one program, the newest first.
        rules: How they are judged.
    """
    passed_over: list[tuple[Found, str]] = []
    for each, reason in complete_ones(found, rules):
        if reason is None:
            return each, passed_over
        passed_over.append((each, reason))
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
        inside = walking.below(path) if path.is_dir() else []
        files = [file for file in (*layouts.all_parts(path), *inside) if file.is_file()] if path.exists() else []
        formats = {file: file_formats.is_whole(file) for file in files}
        reason = _what_is_wrong(path, inside, formats)
        if reason is not None:
            return Verdict(State.INCOMPLETE, reason)
        last_file = layouts.last_file_missing(path) if path.is_dir() else None
        if last_file is not None:
            return Verdict(State.WITHOUT_LAST_FILE, _without(last_file))
        return _judged_by_age(path, formats, rules)
    except OSError as error:  # it is being removed or replaced, or its owner is another user
        return Verdict(State.INCOMPLETE, f"it cannot be read ({error})")


def _without(last_file: str) -> str:
    return (
        f"it has no {last_file}, which is written last; if the program writes no other files, name one that it writes "
        "last in checkpoint.marker"
    )


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
        return f"{'it' if cut_off == path else cut_off.name} ends too early"
    lost = next((file for file in inside if file.is_symlink() and not file.exists()), None)
    if lost is not None:
        return f"{lost.name} is a link to nothing"
    return layouts.what_is_missing(path, inside)


def _judged_by_age(path: Path, formats: Mapping[Path, bool | None], rules: Rules) -> Verdict:
    """A checkpoint whose data have a known format is complete; another one, once it has not changed for a while."""
    data = {file: is_whole for file, is_whole in formats.items() if file.suffix not in peers.TEXTS}
    if any((data or formats).values()):
        return Verdict(State.COMPLETE)
    if rules.now - max(map(_changed_at, [path, *formats])) >= rules.settled_seconds:
        return Verdict(State.COMPLETE)
    return Verdict(State.INCOMPLETE, f"its format is not known, and it changed within {rules.settled_seconds:g} s")


def _has_all_that_others_have(number: int, found: Sequence[Found], verdict_on: Callable[[Path], Verdict]) -> bool:
    """Whether a checkpoint without a last file is complete by comparison: its program never writes more.

    A later checkpoint shows that this one was finished, and an earlier one with the same names that these are all. One
    with a last file shows that the program writes it.
    """
    others = [each for each in found if each != found[number]]
    states = {each: verdict_on(each.path).state for each in others}
    if State.COMPLETE in states.values():
        return False
    own = _kinds(found[number].path)
    alike = [each for each, state in states.items() if state is State.WITHOUT_LAST_FILE]
    return any(own >= _kinds(each.path) for each in alike if found.index(each) < number) or any(
        own == _kinds(each.path) for each in alike
    )


def _kinds(path: Path) -> frozenset[str]:
    """The names in a folder without their numbers, which differ with the step and the number of processes."""
    return frozenset(re.sub(r"\d+", "#", each.name) for each in path.iterdir())


def _difference_from_others(found: Sequence[Found]) -> str | None:
    """The reason to pass over the newest checkpoint, by comparison with the ones before, as a clause."""
    newest, is_folder = found[0], found[0].path.is_dir()
    before = [each.path for each in found[1:] if each.path.is_dir() == is_folder and _is_before(each, newest)]
    try:
        own = _files(newest.path)
        sizes = {name: None if file_formats.is_whole(file) else size for name, (file, size) in own.items()}
        others = [{name: size for name, (_, size) in _files(path).items()} for path in before[: peers.MAX_PEERS]]
    except OSError:
        return None  # one of them is being removed
    return peers.difference(sizes, others)


def _is_before(each: Found, newest: Found) -> bool:
    return each.step is None or newest.step is None or each.step < newest.step


def _files(path: Path) -> dict[str, tuple[Path, int]]:
    """The files of a checkpoint, each with its size, by their names below it; that of one file is empty."""
    if not path.is_dir():
        return {"": (path, path.stat().st_size)}
    files = ((file, file.relative_to(path).as_posix()) for file in walking.below(path) if file.is_file())
    return {name: (file, file.stat().st_size) for file, name in files}


def _behind_links(path: Path, folder: Path) -> Path:
    """The path behind a link, if it is below the folder: a link may be changed while the program runs, and is not
    published."""
    if not path.is_symlink():
        return path
    target, root = os.path.realpath(path), os.path.realpath(folder)
    return folder / os.path.relpath(target, root) if target.startswith(f"{root}{os.sep}") else path


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def changed_at(path: Path) -> float:
    """Time of the last change of a checkpoint or of anything in it, in seconds since 1970; 0 if it is gone."""
    try:
        inside = walking.below(path) if path.is_dir() else []
    except OSError:
        inside = []
    return max(map(_changed_at, (path, *inside)))
