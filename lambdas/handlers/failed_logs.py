"""The last lines of pods' logs, read within a bound: a lost node answers no requests for its logs."""

from __future__ import annotations

import time

from botocore.exceptions import ClientError

from lambdas.backends.backend import Backend
from lambdas.handlers.last_lines import keep_ended_log
from lambdas.handlers.task import logger
from lambdas.logic.departures import PodEvidence
from trainflow.errors import TrainflowError
from trainflow.failures.log_lines import MAX_LINES
from trainflow.observed.pod import Pod
from trainflow.protocol.restart_line import since_restart

READING_SECONDS = 20.0
"""No log is begun after this time: one that hangs takes 20 seconds more, of a function's 60."""


class FailedLogs:
    """Logs of a job that failed or hangs, which are read one after the other within one time for all of them."""

    def __init__(self, backend: Backend, run_id: str, *, keeps: bool, began: float | None = None) -> None:
        """Makes no request yet.

        Args:
            backend: The backend of the pods.
            run_id: Their run.
            keeps: Whether the function may store the logs for the states that follow.
            began: When the function began to read logs, on the monotonic clock; now if it is left out.
        """
        self._backend, self._run_id, self._keeps = backend, run_id, keeps
        self._deadline = (time.monotonic() if began is None else began) + READING_SECONDS

    def read(self, pod: Pod) -> PodEvidence:
        """The pod with the last lines of its log; without them and with the reason, if it cannot be read in time."""
        if time.monotonic() > self._deadline:
            return PodEvidence(pod, unread="There was no time left to read this log.")
        try:
            log = tuple(self._backend.read_log(pod.name, tail_lines=MAX_LINES))
        except (TrainflowError, ClientError) as error:
            logger.warning("a pod's log could not be read", extra={"pod": pod.name, "reason": str(error)})
            return PodEvidence(pod, unread=str(error))
        if self._keeps and pod.exit_code is not None:
            keep_ended_log(self._run_id, pod.name, log)
        return PodEvidence(pod, tuple(since_restart([line.text for line in log])))
