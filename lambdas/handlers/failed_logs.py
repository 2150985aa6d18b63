"""The last lines of failed pods' logs, read within a bound: a lost node answers no requests for its logs."""

from __future__ import annotations

import time
from dataclasses import dataclass

from botocore.exceptions import ClientError

from lambdas.backends.backend import Backend
from lambdas.handlers.task import logger
from trainflow.errors import TrainflowError

READING_SECONDS = 20.0
"""No further log is read after this time: one that hangs takes 20 seconds more, of the function's 60."""


@dataclass(frozen=True)
class LastLines:
    """The last lines of a log, if it could be read."""

    lines: tuple[str, ...] = ()
    unread: str | None = None
    """Reason why the log could not be read; None if it was."""


class FailedLogs:
    """Logs of a job's failed pods, which are read one after the other. The time for all of them begins now."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._deadline = time.monotonic() + READING_SECONDS

    def last_lines(self, pod: str, *, tail_lines: int) -> LastLines:
        """The last lines of the pod's log; none, and the reason, if it cannot be read in time."""
        if time.monotonic() > self._deadline:
            return LastLines(unread="There was no time left to read this log.")
        try:
            lines = tuple(line.text for line in self._backend.read_log(pod, tail_lines=tail_lines))
        except (TrainflowError, ClientError) as error:
            logger.warning("a failed pod's log could not be read", extra={"pod": pod, "reason": str(error)})
            return LastLines(unread=str(error))
        return LastLines(lines)
