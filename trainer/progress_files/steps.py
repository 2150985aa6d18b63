"""New steps in the files below a run's folder, each once and in ascending order."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

from trainer.progress_files.event_files import EventFile

QUIET_SECONDS = 15.0
"""Seconds without a later step before a step's scalars count as complete."""

SUMMARIES = ("train_", "total_flos")
"""Names in `trainer_state.json` of figures of the whole training, which Hugging Face puts beside the last step's."""

Step = Mapping[str, Any]
"""Figures of a step by name, `step` among them."""

Paths = Callable[[], Iterable[Path]]
"""Finds the files that are there now."""


def below(folder: Path, pattern: str) -> Paths:
    """The files below a folder that a glob finds."""
    return lambda: sorted(folder.glob(pattern))


class StepFiles(Protocol):
    """Files that contain steps."""

    def new_steps(self, *, final: bool) -> Iterator[Step]:
        """Steps that were not returned before; with `final`, also those that may still be incomplete.

        Raises:
            OSError, ValueError: If a file cannot be read.
        """


class TensorBoardSteps:
    """Scalars of event files, put together by their step."""

    def __init__(self, paths: Paths, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = paths
        self._clock = clock
        self._files: dict[Path, EventFile] = {}
        self._open: dict[int, dict[str, Any]] = {}
        self._grown_at = clock()
        self._last = -1

    def new_steps(self, *, final: bool) -> Iterator[Step]:
        """See `StepFiles`."""
        for path in self._paths():
            for scalar in self._files.setdefault(path, EventFile(path)).new_scalars():
                if scalar.step > self._last:
                    figures = self._open.setdefault(scalar.step, {})
                    figures |= {scalar.tag: scalar.value, "logged_at": round(scalar.wall_time, 3)}
                    self._grown_at = self._clock()
        newest = max(self._open, default=-1)
        is_complete = final or self._clock() - self._grown_at >= QUIET_SECONDS
        for step in sorted(self._open):
            if step < newest or is_complete:
                self._last = step
                yield {**self._open.pop(step), "step": step}


class TrainerStateSteps:
    """The log's history in the newest of Hugging Face's `trainer_state.json`; it does not contain times."""

    def __init__(self, paths: Paths) -> None:
        self._paths = paths
        self._seen: tuple[Path, int] | None = None
        self._last = -1

    def new_steps(self, *, final: bool) -> Iterator[Step]:
        """See `StepFiles`. The file is complete once a step is in it."""
        del final
        changed = {path: path.stat().st_mtime_ns for path in self._paths()}
        newest = max(changed.items(), key=lambda entry: entry[1], default=None)
        if newest is None or newest == self._seen:
            return
        history = json.loads(newest[0].read_bytes()).get("log_history", [])
        self._seen = newest
        steps: dict[int, dict[str, Any]] = {}
        for entry in history:
            steps.setdefault(entry["step"], {}).update(
                (name, value) for name, value in entry.items() if not name.startswith(SUMMARIES)
            )
        for step in sorted(steps):
            if step > self._last:
                self._last = step
                yield steps[step]
