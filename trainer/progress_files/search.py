"""Search for files with steps that a program writes, although its spec names none.

The search looks below the run's folder and below the working folder. Only what is written after its beginning counts:
earlier files are of other trainings, or of an earlier attempt of this one. One kind of file is chosen, the first that
shows steps of a training, and is read for as long as the program runs.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from trainer.progress_files.event_files import FILES
from trainer.progress_files.steps import Step, StepFiles, TensorBoardSteps, TrainerStateSteps
from trainer.progress_files.tables import TableFile, TableSteps

SEARCH_SECONDS = 15.0
"""Time between two searches for new files."""

MOST_ENTRIES = 20_000
"""Entries of folders that one search visits; a shared file system answers some thousand in a second."""

MOST_TABLES = 50
"""Most tables that are read until one is chosen."""

TRAINER_STATE = "trainer_state.json"

_TABLE = re.compile(
    r".*\.(?:csv|tsv|jsonl|ndjson)|progress\.txt|.*(?:metric|scalar|log|hist|progress|train|result|stat).*\.json",
    re.IGNORECASE,
)
"""Names of tables. Most files that end in `.json` hold settings."""

_EVALUATION = re.compile(r"eval|val|test", re.IGNORECASE)

PASSED_OVER = frozenset({"__pycache__", "node_modules", "site-packages"})
"""Folders that contain no results, beside hidden ones."""


@dataclass
class _Candidate:
    """Files that may contain the training's steps, with the steps that have been read until one of them is chosen."""

    files: StepFiles
    steps: list[Step] = field(default_factory=list)

    def read(self, *, final: bool) -> bool:
        """Read on; whether these are a training's steps: one has a loss, or there are two.

        The files were found by their names. So they may be anything, and may be deleted like old checkpoints.
        """
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            self.steps.extend(self.files.new_steps(final=final))
        return len(self.steps) > 1 or any("loss" in name.lower() for step in self.steps for name in step)


class SearchedSteps:
    """Steps in the files below some folders that are written from now on; see `StepFiles`."""

    def __init__(self, folders: Sequence[Path], *, clock: Callable[[], float] = time.monotonic) -> None:
        self._folders, self._clock = folders, clock
        self._sizes = {path: _size(path) for path in _files(folders)}
        """Sizes of the files of before."""
        self._searched_at = clock()
        self._events: list[Path] = []
        self._states: list[Path] = []
        self._tables: dict[Path, _Candidate] = {}
        self._event_steps = _Candidate(TensorBoardSteps(lambda: filter(Path.exists, self._events), clock=clock))
        self._state_steps = _Candidate(TrainerStateSteps(lambda: filter(Path.exists, self._states)))
        self._chosen: _Candidate | None = None

    def new_steps(self, *, final: bool) -> Iterator[Step]:
        """Steps that were not returned before, of one kind of file only: two would show each step twice."""
        # A table is one file; of event files and states there may be more and more.
        may_grow = self._chosen is None or self._chosen is self._event_steps or self._chosen is self._state_steps
        if may_grow and (final or self._clock() - self._searched_at >= SEARCH_SECONDS):
            self._search()
        if self._chosen is None:
            self._chosen = next((each for each in self._candidates() if each.read(final=final)), None)
        else:
            self._chosen.read(final=final)
        if self._chosen is not None:
            found, self._chosen.steps = self._chosen.steps, []
            yield from found

    def _candidates(self) -> Iterable[_Candidate]:
        by_name = sorted(self._tables, key=lambda path: (bool(_EVALUATION.search(path.name)), path))
        return (self._event_steps, *(self._tables[path] for path in by_name), self._state_steps)

    def _search(self) -> None:
        self._searched_at = self._clock()
        for path in _files(self._folders):
            if path in self._sizes and _size(path) == self._sizes[path]:
                continue
            if fnmatch.fnmatch(path.name, FILES):
                _add(self._events, path)
            elif path.name == TRAINER_STATE:
                _add(self._states, path)
            elif path not in self._tables and len(self._tables) < MOST_TABLES:
                self._tables[path] = _Candidate(TableSteps(TableFile(path, skip=self._sizes.get(path, 0))))


def _add(paths: list[Path], path: Path) -> None:
    if path not in paths:
        paths.append(path)


def _files(folders: Sequence[Path]) -> Iterator[Path]:
    """Files below the folders whose names may be those of steps' files, each once."""
    seen: set[str] = set()
    entries = 0
    for folder in folders:
        for place, names, files in os.walk(folder):
            names[:] = sorted(name for name in names if not name.startswith(".") and name not in PASSED_OVER)
            entries += len(names) + len(files)
            if entries > MOST_ENTRIES:
                return
            if (real := os.path.realpath(place)) in seen:
                names.clear()
                continue
            seen.add(real)
            yield from (Path(place, name) for name in sorted(files) if _may_hold_steps(name))


def _may_hold_steps(name: str) -> bool:
    return fnmatch.fnmatch(name, FILES) or name == TRAINER_STATE or _TABLE.fullmatch(name) is not None


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return -1
