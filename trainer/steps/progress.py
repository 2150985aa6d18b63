"""Print the progress of a program that writes it to files.

The functions read the log and no file system. So a thread of the supervisor reads the files below the run's folder
while the program runs, and those of the working folder if it has to search. It prints a report line for each new step,
and a line when files have changed in a minute without a step. It prints on the node of rank 0, and, where ranks are
assigned at run time, on every node.

It never makes the training fail: what goes wrong with the files is one line on stderr.
"""

from __future__ import annotations

import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from trainer.progress_files.event_files import FILES
from trainer.progress_files.search import PASSED_OVER, SearchedSteps
from trainer.progress_files.steps import StepFiles, TensorBoardSteps, TrainerStateSteps, below
from trainer.runtime.node import Node
from trainer.runtime.workers import Worker
from trainflow.protocol.plan import Progress
from trainflow.protocol.step_report import ALIVE, METRICS, RELAYED

POLL_SECONDS = 5.0
"""Time between two polls of the files."""

ALIVE_SECONDS = 60.0
"""Time between two comparisons of the run's files."""

LAST_SECONDS = 10.0
"""Longest time that the end of the command waits for the last steps."""

MAX_STEPS_AT_ONCE = 1000
"""Most steps of one poll that are printed, the newest: a restarted program finds the whole history in its files."""

MAX_STEPS_OF_A_FAILURE = 20
"""The same when the command has failed: its error message has to stay near the end of the log."""

MAX_FILES = 10_000
"""Most files of a folder whose changes are watched."""

_OF_MONITORS = re.compile(r"/wandb/.*\.(?:wandb|log)$|/metrics/system/|/gpu\w*\.csv$|/neuron-monitor")
"""Files of programs that watch the machine. They grow also while the training hangs: W&B's and MLflow's system metrics
(wandb.sdk.internal.system, mlflow.system_metrics)."""


def relayed(step: Progress, node: Node, run: Callable[[], int]) -> int:
    """Run a program and print its progress meanwhile, on nodes whose log the functions read; its exit code.

    Args:
        step: The step of the plan.
        node: This node.
        run: Runs the program, and returns its exit code.
    """
    run_dir = node.environment.run_dir
    if run_dir is None or node.rank != 0:
        return run()
    folders = (run_dir, *working_folder()) if step.search else (run_dir,)
    relay = Relay(*folders, files=step_files(step, folders))
    relay.start()
    code = run()
    relay.stop(failed=code != 0)
    return code


def working_folder() -> Iterator[Path]:
    """The program's working folder, unless that is the whole file system."""
    folder = Path.cwd()
    if folder != folder.parent:
        yield folder


def step_files(step: Progress, folders: Sequence[Path]) -> StepFiles | None:
    """The files that hold steps, the run's folder being the first; None for a program without such files."""
    run_dir = folders[0]
    if step.tensorboard is not None:
        return TensorBoardSteps(below(run_dir / step.tensorboard, f"**/{FILES}"))
    if step.trainer_state is not None:
        return TrainerStateSteps(below(run_dir, step.trainer_state))
    return SearchedSteps(folders) if step.search else None


class Relay:
    """Prints what the files say, in a thread of its own.

    Args:
        folders: Folders whose changes are watched, such as the run's.
        files: Files that contain steps; may be empty.
        write: Writes one line; a whole line in one call, since the command writes into the same stream.
    """

    def __init__(self, *folders: Path, files: StepFiles | None, write: Callable[[str], None] | None = None) -> None:
        self._folders, self._files = folders, files
        self._write = write or _write_line
        self._stopping = threading.Event()
        self._failed = False
        self._complained = False
        self._thread = Worker(self._run, name="relay")
        self._compared_at = time.monotonic()
        self._before: dict[str, tuple[int, int]] | None = None
        """Time of change and size by file; None before the first reading."""

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, *, failed: bool) -> None:
        """Print the last steps and end; storage that hangs holds this up for `LAST_SECONDS` at most."""
        self._failed = failed
        self._stopping.set()
        self._thread.join(LAST_SECONDS)
        if self._thread.error is not None:
            self._complain(self._thread.error)

    def poll(self, *, final: bool = False) -> None:
        """Print what is new. Faults are printed once."""
        try:
            if self._tell_steps(final=final):
                self._compared_at = time.monotonic()
            elif time.monotonic() - self._compared_at >= ALIVE_SECONDS:
                self._compared_at = time.monotonic()
                self.tell_changes()
        except Exception as error:  # noqa: BLE001  (the training goes on, whatever is wrong with its files)
            self._complain(error)

    def tell_changes(self) -> None:
        """Print a line if files have changed since the call before."""
        now = {path: state for folder in self._folders for path, state in _states(folder)}
        before, self._before = self._before, now
        changed = sum(before.get(path) != state for path, state in now.items()) if before is not None else 0
        if changed:
            self._write(json.dumps({ALIVE: {"changed_files": changed}}))

    def _complain(self, error: BaseException) -> None:
        if not self._complained:
            self._complained = True
            print(f"trainer.steps.progress: {type(error).__name__}: {error}", file=sys.stderr, flush=True)

    def _run(self) -> None:
        while not self._stopping.wait(POLL_SECONDS):
            self.poll()
        self.poll(final=True)

    def _tell_steps(self, *, final: bool) -> int:
        steps = list(self._files.new_steps(final=final)) if self._files else []
        for step in steps[-(MAX_STEPS_OF_A_FAILURE if self._failed else MAX_STEPS_AT_ONCE) :]:
            known = {name: value for name, value in step.items() if isinstance(value, int | float)}
            self._write(json.dumps({METRICS: {**_finite(known), **RELAYED}}))
        return len(steps)


def _finite(figures: dict[str, float]) -> dict[str, float | str]:
    """The figures as JSON can hold them: what is not finite is a word, which only a loss may be."""
    return {name: value if abs(value) < float("inf") else str(value) for name, value in figures.items()}


def _states(folder: Path) -> Iterator[tuple[str, tuple[int, int]]]:
    """Path, time of change and size of each file below a folder."""
    count = 0
    for place, inner, names in os.walk(folder):
        inner[:] = [name for name in inner if name not in PASSED_OVER]
        for name in names:
            path = os.path.join(place, name)  # noqa: PTH118  (strings: there may be thousands)
            if _OF_MONITORS.search(path):
                continue
            try:
                status = os.stat(path)  # noqa: PTH116
            except OSError:
                continue
            yield path, (status.st_mtime_ns, status.st_size)
            count += 1
            if count == MAX_FILES:
                return


def _write_line(line: str) -> None:
    os.write(1, f"{line}\n".encode())
