"""Logs that no observer writes, fetched from a run's place when a person opens them.

They are the logs of large gangs, where only some are followed, of callers who may not see the cluster, and of ended
runs: CloudWatch Logs keeps them after the pods are gone.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from trainflow.background import Worker, described
from trainflow.client.owned_folder import OwnedFolder
from trainflow.client.place import LogRequest
from trainflow.errors import TrainflowError

MAX_BYTES = 256 * 1024 * 1024
"""Most that is fetched of a log: it lies in the temporary folder of this machine."""

RETRY_SECONDS = 10.0
"""Seconds until a log that could not be fetched is tried again."""

RANK = re.compile(r"rank (\d{1,6})")
"""Name of the log of a rank whose pod is not known."""


@runtime_checkable
class GivesLogs(Protocol):
    """A place that has logs of pods: `trainflow.client.place.RunReader`."""

    def log(self, run_id: str, request: LogRequest) -> Iterator[str]:
        """The lines of a pod, or of a rank."""


@dataclass(frozen=True, kw_only=True)
class OpenLog:
    """A log at one moment."""

    path: Path
    """Its lines as far as they are here; the file may not be there yet."""
    note: str = ""
    """Sentences for readers of the log."""
    is_growing: bool = False
    """Whether more lines are being fetched."""
    is_behind: bool = False
    """Whether lines are missing that were written long ago."""


class _Fetch:
    """One log, which a thread of its own writes to a file."""

    def __init__(self, place: GivesLogs, run_id: str, request: LogRequest, path: Path) -> None:
        self._place, self._run_id, self._request, self._path = place, run_id, request, path
        self._notes: list[str] = []
        self._stopping = threading.Event()
        self.ended_at: float | None = None
        self.has_failed = False
        self._thread = Worker(self._run, name=f"fetch-{path.stem}", on_error=self._fail)
        self._thread.start()

    def now(self) -> OpenLog:
        is_growing = self.ended_at is None
        return OpenLog(
            path=self._path,
            note=" ".join(self._notes),
            is_growing=is_growing,
            is_behind=is_growing and not self._request.follow,
        )

    def stop(self) -> None:
        """End with the next line."""
        self._stopping.set()

    def _run(self) -> None:
        try:
            self._write()
        except TrainflowError as trouble:
            self.has_failed = True
            self._notes.append(str(trouble))
        except OSError as unwritable:
            self.has_failed = True
            self._notes.append(f"The log cannot be written to {self._path.parent}: {unwritable.strerror}.")
        finally:
            self.ended_at = time.monotonic()

    def _fail(self, error: BaseException) -> None:
        self.has_failed = True
        self._notes.append(f"The log could not be fetched: {described(error)}.")

    def _write(self) -> None:
        request = LogRequest(
            rank=self._request.rank, pod=self._request.pod, follow=self._request.follow, notify=self._notes.append
        )
        written = 0
        lines = self._place.log(self._run_id, request)
        with self._path.open("wb") as file:
            for line in lines:
                if self._stopping.is_set():
                    return
                written += file.write(line.encode("utf-8", "replace") + b"\n")
                file.flush()
                if written >= MAX_BYTES:
                    self._notes.append(
                        f"Only the first {MAX_BYTES // 1024**2} MiB are here; `trainflow logs` has the rest."
                    )
                    return


class FetchedLogs:
    """The logs of one run, each fetched once. All methods may be called from several threads."""

    def __init__(self, place: GivesLogs, run_id: str) -> None:
        """Fetches nothing yet."""
        self._place, self._run_id = place, run_id
        self._fetches: dict[str, _Fetch] = {}
        self._folder: OwnedFolder | None = None
        self._lock = threading.Lock()

    def open(self, name: str, *, follow: bool) -> OpenLog:
        """A log, as far as it is here; the first call begins to fetch it.

        Args:
            name: Name of a pod, or `rank 7`.
            follow: Whether to go on with lines that the pod still writes.
        """
        with self._lock:
            if self._folder is None:
                self._folder = OwnedFolder("trainflow-logs-")
            known = self._fetches.get(name)
            if known is None or (
                known.has_failed and known.ended_at and time.monotonic() >= known.ended_at + RETRY_SECONDS
            ):
                rank = RANK.fullmatch(name)
                request = LogRequest(rank=int(rank[1]), follow=follow) if rank else LogRequest(pod=name, follow=follow)
                path = Path(self._folder.name) / f"{len(self._fetches)}-{name}.log"
                known = self._fetches[name] = _Fetch(self._place, self._run_id, request, path)
            return known.now()

    def close(self) -> None:
        """End fetching, and delete what was fetched."""
        with self._lock:
            for fetch in self._fetches.values():
                fetch.stop()
            if self._folder is not None:
                self._folder.cleanup()
                self._folder = None
