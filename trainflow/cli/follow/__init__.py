"""Watching a run in the terminal while it goes on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Protocol

from rich.live import Live

from trainflow.cli.follow.plain import PlainView
from trainflow.cli.follow.screen import screen
from trainflow.cli.follow.summary import summarize
from trainflow.cli.terminal import Console
from trainflow.observed.run_state import RunState
from trainflow.workflow.run_record import RunStatus

__all__ = ["follow", "summarize"]

MAX_LATE_FRAMES = 20
"""Frames after the end until the observer, too, must have seen it."""

FRAMES_PER_SECOND = 4
"""Fast enough for a clock, slow enough to leave the training its processor."""


class Observer(Protocol):
    """Source of snapshots: `trainflow.client.observe.RunObserver`, or a test's replay."""

    def snapshot(self) -> RunState:
        """The run's present state."""


def follow(
    observer: Observer,
    console: Console,
    is_finished: Callable[[], bool],
    *,
    pause: Callable[[], None] = lambda: time.sleep(1 / FRAMES_PER_SECOND),
    may_show: Callable[[], None] | None = None,
) -> None:
    """Shows a run until it is finished.

    On a terminal: one view that is drawn anew. Elsewhere (a file, CI): a line for each thing that happens.

    Args:
        observer: Tells what is known of the run.
        console: Where to write.
        is_finished: Whether to stop; the run is shown once more then.
        pause: Waits until the next poll.
        may_show: Waits as long as something else is on the terminal.
    """
    if may_show is not None:
        pause = _both(pause, may_show)
    if console.is_terminal:
        _follow_on_screen(observer, console, is_finished, pause)
    else:
        _follow_in_lines(observer, console, is_finished, pause)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def call() -> None:
        first()
        second()

    return call


def _follow_on_screen(
    observer: Observer, console: Console, is_finished: Callable[[], bool], pause: Callable[[], None]
) -> None:
    # Drawn by hand instead of by Live's own thread: a snapshot is taken once a frame, where it is shown.
    with Live(console=console, auto_refresh=False, transient=False, vertical_overflow="crop") as live:
        for snapshot in _snapshots(observer, is_finished, pause):
            live.update(screen(snapshot, max_height=console.height, max_width=console.width), refresh=True)


def _follow_in_lines(
    observer: Observer, console: Console, is_finished: Callable[[], bool], pause: Callable[[], None]
) -> None:
    view = PlainView()
    for snapshot in _snapshots(observer, is_finished, pause):
        for line in view.new_lines(snapshot):
            console.print(line, markup=False, highlight=False, soft_wrap=True)
    for line in view.held_lines():
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _snapshots(observer: Observer, is_finished: Callable[[], bool], pause: Callable[[], None]) -> Iterator[RunState]:
    """One snapshot a poll, until the run is finished and the observer knows it."""
    late_frames = 0
    while True:
        finished = is_finished()
        snapshot = observer.snapshot()
        yield snapshot
        late_frames += finished
        if finished and (snapshot.status is not RunStatus.RUNNING or late_frames >= MAX_LATE_FRAMES):
            return
        pause()
