"""Pod logs to files, line by line as they come: no line lost, none twice, also across broken connections."""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from trainflow.background import Worker, described
from trainflow.client.log_times import LogTimes, times_file
from trainflow.client.observe.cluster import LineStream, PodSource
from trainflow.errors import TrainflowError
from trainflow.kubernetes.faults import NotFound
from trainflow.workflow.log_line import LogLine

NUM_LAST_LINES = 20
"""Number of lines of an active log that are kept for the terminal."""

NUM_KEPT_LINES = 300
"""Lines of each log that are kept: a traceback, and behind it torchrun's report, with seven lines for each of 32
processes."""

PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between two openings of a log, growing while nothing new comes."""


class Resumption:
    """Remembers where a log was left, to go on there.

    The API can be asked for lines from a whole second on (`sinceTime`), so what was already written of that second
    comes again and has to be skipped: exactly those lines, as often as they were written.
    """

    def __init__(self) -> None:
        self._newest: datetime | None = None
        self._written: Counter[str] = Counter()
        self._again: Counter[str] = Counter()

    @property
    def since(self) -> str | None:
        """The second to ask from (RFC 3339); None for the beginning."""
        return self._newest.strftime("%Y-%m-%dT%H:%M:%SZ") if self._newest else None

    def reopen(self) -> None:
        """Says that the log is read again from `since` on."""
        self._again = self._written.copy()

    def accept(self, stamped: str) -> str | None:
        """The text of a stamped line, or None if it was written before."""
        if self._again[stamped] > 0:
            self._again[stamped] -= 1
            return None
        stamp, _, text = stamped.partition(" ")
        second = _whole_second(stamp)
        if second is None:
            return stamped  # the kubelet's own remarks bear no stamp
        if self._newest is None or second > self._newest:
            self._newest = second
            self._written.clear()
        if second == self._newest:
            self._written[stamped] += 1
        return text


def log_line(stamped: str) -> LogLine | None:
    """A line with the time in front of it; None for one that bears none, or that is not complete yet."""
    logged_at = time_of(stamped)
    if logged_at is None or not stamped.endswith("\n"):
        return None
    return LogLine(logged_at, stamped.removesuffix("\n").partition(" ")[2])


def _whole_second(stamp: str) -> datetime | None:
    time = time_of(stamp)
    return time.replace(microsecond=0) if time else None


def time_of(stamped: str) -> datetime | None:
    """The time in front of a line; None for a line without one."""
    try:
        return datetime.fromisoformat(stamped.partition(" ")[0]).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


class LogFollower:
    """Writes the log of one pod to a file until the pod has ended and everything is written."""

    def __init__(
        self,
        source: PodSource,
        *,
        pod: str,
        container: str,
        path: Path,
        has_ended: Callable[[], bool],
        on_line: Callable[[LogLine], None] | None = None,
    ) -> None:
        """Prepares the follower.

        Args:
            source: The cluster.
            pod: Name of the pod.
            container: Name of its container.
            path: File to write; an older one is replaced. The times of its lines go to another beside it.
            has_ended: Whether the pod has finished or is gone, so that its log will grow no more.
            on_line: Called with each new line, without its line break, and the time of its logging, from the follower's
                thread.
        """
        self._source, self._pod, self._container, self._path = source, pod, container, path
        self._has_ended, self._on_line = has_ended, on_line
        self._resumption = Resumption()
        self._times: LogTimes | None = None
        self._num_lines = 0
        self._unfinished = ""
        self._last_lines: deque[str] = deque(maxlen=NUM_KEPT_LINES)
        self._stream: LineStream | None = None
        self._stopping = threading.Event()
        self._thread = Worker(self._run, name=f"log-{pod}", on_error=self._note_error)
        self.trouble: str | None = None
        """Reason why the log could not be written; None if it could."""

    def start(self) -> None:
        """Begins to follow."""
        self._thread.start()

    def last_lines(self) -> tuple[str, ...]:
        """The newest lines."""
        return tuple(self._last_lines)

    def join(self, timeout: float) -> bool:
        """Waits until the log is complete; whether it is."""
        self._thread.join(timeout=max(0.0, timeout))
        return not self._thread.is_alive()

    def stop(self) -> None:
        """Gives up following."""
        self._stopping.set()
        if self._stream is not None:
            self._stream.close()

    def _run(self) -> None:
        try:
            with self._path.open("wb") as file, times_file(self._path).open("w", encoding="utf-8") as times:
                self._times = LogTimes(times)
                self._follow(file)
        except OSError as unwritable:
            self.trouble = f"The log '{self._path}' cannot be written: {unwritable.strerror}."

    def _note_error(self, error: BaseException) -> None:
        self.trouble = f"The log '{self._path}' is incomplete ({described(error)})."

    def _follow(self, file: BinaryIO) -> None:
        idle = 0
        while not self._stopping.is_set():
            ended = self._has_ended()  # asked before reading: what is read then is all there is
            num_lines, cut_off = self._num_lines, self._unfinished
            try:
                self._read(file, follow=not ended)
            except NotFound:
                self._unfinished = cut_off
                break
            except TrainflowError:
                ended = False
            # A last line without its line break is the end of the log, or of a connection: seen twice it is the log's.
            if ended and self._unfinished == cut_off:
                break
            idle = 0 if self._num_lines > num_lines else min(idle + 1, len(PAUSES) - 1)
            self._stopping.wait(PAUSES[idle])
        if self._unfinished:
            self._write(file, self._unfinished)

    def _read(self, file: BinaryIO, *, follow: bool) -> None:
        """Reads the log from where it was left."""
        self._resumption.reopen()
        self._unfinished = ""
        self._stream = self._source.pod_log(self._pod, self._container, since=self._resumption.since, follow=follow)
        if self._stopping.is_set():
            self._stream.close()  # stop() came between the two and met no stream
        for line in self._stream:
            if line.endswith("\n"):
                self._write(file, line.removesuffix("\n"))
            else:
                self._unfinished = line

    def _write(self, file: BinaryIO, stamped: str) -> None:
        text = self._resumption.accept(stamped)
        if text is None:
            return
        self._num_lines += 1
        logged_at = time_of(stamped)
        if logged_at is not None and self._times is not None:
            self._times.add(logged_at, file)
        file.write(text.encode("utf-8") + b"\n")
        file.flush()
        self._last_lines.append(text)
        if self._on_line is not None:
            self._on_line(LogLine(logged_at or datetime.now(UTC), text))
