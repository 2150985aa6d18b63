"""The last lines of pods' logs, read within a bound: a lost node answers no requests for its logs."""

from __future__ import annotations

import time

from botocore.exceptions import ClientError

from lambdas.backends.backend import Backend
from lambdas.handlers.last_lines import keep_ended_log
from lambdas.handlers.task import logger
from lambdas.logic.departures import PodEvidence
from lambdas.logic.unread_log import UnreadLines, position_in
from trainflow.errors import TrainflowError
from trainflow.failures.log_lines import MAX_LINES
from trainflow.observed.pod import Pod
from trainflow.progress.reader import ProgressReader, lines_apart
from trainflow.protocol.restart_line import since_restart
from trainflow.spec.total_steps import total_steps
from trainflow.workflow.log_line import LogLine
from trainflow.workflow.run import MetricsCursor, Run

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
        self._logs = dict[str, tuple[LogLine, ...]]()

    def read(self, pod: Pod) -> PodEvidence:
        """The pod with the last lines of its log; without them and with the reason, if it cannot be read in time."""
        if time.monotonic() > self._deadline:
            return PodEvidence(pod, unread="There was no time left to read this log.")
        try:
            log = tuple(self._backend.read_log(pod.name, tail_lines=MAX_LINES))
        except (TrainflowError, ClientError) as error:
            logger.warning("a pod's log could not be read", extra={"pod": pod.name, "reason": str(error)})
            return PodEvidence(pod, unread=str(error))
        self._logs[pod.name] = log
        if self._keeps and pod.exit_code is not None:
            keep_ended_log(self._run_id, pod.name, log)
        return PodEvidence(pod, tuple(since_restart([line.text for line in log])))

    def newest_step(self, pod: str, run: Run, cursor: MetricsCursor) -> int | None:
        """The newest step of rank 0, also one that was logged after the last publication.

        Args:
            pod: The pod that prints the steps, whose log may have been read.
            run: The run.
            cursor: Position of what has been published.
        """
        log, position = self._logs.get(pod, ()), position_in(cursor, pod)
        if position is None and len(log) >= MAX_LINES:
            return cursor.last_step  # its beginning is unknown, and lines may have to be counted
        since = [line for line in log if position is None or line.logged_at >= position.since]
        unread = UnreadLines(since, position, pod=pod)
        total = total_steps(run.spec.model_dump(mode="json"), cursor.first_step)
        reader = ProgressReader(run.spec.progress, lines_apart=lines_apart(run.spec), total=total, behind=cursor)
        steps = [step.step for line in unread for step in reader.read(line)]
        if reader.held is not None:
            steps.append(reader.held.step)
        known = [] if cursor.last_step is None else [cursor.last_step]
        return max(known if unread.replaced else [*known, *steps], default=None)
