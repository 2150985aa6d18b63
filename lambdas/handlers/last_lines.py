"""Copies of the last lines of logs in S3. Kubernetes deletes a log with its pod.

The log of a program that has ended does not change any more. Its copy is marked, and read in place of the pod's log:
PollJob reads the log of a failed pod, and the states that follow read the copy. PollJob itself does not read it: a
repeated call has to judge the same lines, and the copy has fewer.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from lambdas.backends.backend import Backend
from lambdas.gateways import objects
from lambdas.handlers.environment import read
from lambdas.handlers.task import logger
from lambdas.logic.diagnostics import KEPT_LINES, MAX_KEPT_BYTES, kept_lines, kept_text
from trainflow.deployment.environment import ArtifactEnvironment
from trainflow.workflow.log_line import LogLine

KEEPING_SECONDS = 15.0
"""No further log is started after this time: the last one may hang for 20 seconds more, and the function still has to
delete the pods."""

ENDED = {"program": "ended"}
"""Metadata of the copy of a log whose program has ended."""


def keep_last_lines(backend: Backend, run_id: str, *, lost_pod: str | None = None) -> None:
    """Store the last lines of rank 0 and of failed pods with the run's artifacts, as `logs/<pod>.log`. Never raises.

    A log that cannot be read, for example because its node is lost, must not delay the release of the nodes.

    Args:
        backend: Where the run's jobs are.
        run_id: The run.
        lost_pod: Pod of a lost node, whose log cannot be read.
    """
    deadline = time.monotonic() + KEEPING_SECONDS
    try:
        for pod in backend.pods_to_diagnose(run_id):
            if pod == lost_pod:
                continue
            if time.monotonic() < deadline:
                _keep(backend, run_id, pod)
            else:
                logger.warning("there was no time to keep the last lines", extra={"pod": pod})
    except Exception:  # noqa: BLE001 (no error may prevent the release of the nodes)
        logger.exception("the last lines could not be kept")


def keep_ended_log(run_id: str, pod: str, lines: Iterable[LogLine]) -> None:
    """Store the last lines of a pod whose program has ended. Never raises."""
    try:
        _write(run_id, pod, lines, metadata=ENDED)
    except Exception:  # noqa: BLE001 (the failure of the job is what counts)
        logger.exception("the last lines could not be kept", extra={"pod": pod})


def kept_log(run_id: str, pod: str) -> tuple[str, ...]:
    """The last lines of a pod whose program has ended; empty if they are not stored. Never raises."""
    environment = read(ArtifactEnvironment)
    bucket, key = environment.artifact_bucket, _key(environment, run_id, pod)
    try:
        found = objects.head(bucket, key)
        if found is None or found.metadata != ENDED:
            return ()
        text = objects.read(bucket, key, version_id=None, limit_bytes=MAX_KEPT_BYTES)
    except Exception:  # noqa: BLE001 (the pod's own log is read instead)
        logger.exception("the kept lines could not be read", extra={"pod": pod})
        return ()
    return kept_lines(text.decode(errors="replace")) if text else ()


def _keep(backend: Backend, run_id: str, pod: str) -> None:
    try:
        if not kept_log(run_id, pod):
            _write(run_id, pod, backend.read_log(pod, tail_lines=KEPT_LINES))
    except Exception:  # noqa: BLE001 (the logs of the other pods may be readable)
        logger.exception("the last lines could not be kept", extra={"pod": pod})


def _write(run_id: str, pod: str, lines: Iterable[LogLine], **options: Any) -> None:
    if text := kept_text(lines):
        environment = read(ArtifactEnvironment)
        bucket, key = environment.artifact_bucket, _key(environment, run_id, pod)
        objects.write(bucket, key, text, content_type="text/plain; charset=utf-8", **options)


def _key(environment: ArtifactEnvironment, run_id: str, pod: str) -> str:
    return environment.key_of(run_id, f"logs/{pod}.log")
