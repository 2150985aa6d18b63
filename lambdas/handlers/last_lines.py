"""Copies of the last lines of logs in S3. Kubernetes deletes a log with its pod."""

from __future__ import annotations

import time

from lambdas.backends.backend import Backend
from lambdas.gateways import objects
from lambdas.handlers.environment import read
from lambdas.handlers.task import logger
from lambdas.logic.diagnostics import KEPT_LINES, kept_text
from trainflow.models.environment import ArtifactEnvironment

KEEPING_SECONDS = 15.0
"""No further log is started after this time: the last one may hang for 20 seconds more, and the function still has to
delete the pods."""


def keep_last_lines(backend: Backend, run_id: str) -> None:
    """Store the last lines of rank 0 and of failed pods with the run's artifacts, as `logs/<pod>.log`. Never raises.

    A log that cannot be read, for example because its node is lost, must not delay the release of the nodes.
    """
    deadline = time.monotonic() + KEEPING_SECONDS
    try:
        for pod in backend.pods_to_diagnose(run_id):
            if time.monotonic() < deadline:
                _keep(backend, run_id, pod)
            else:
                logger.warning("there was no time to keep the last lines", extra={"pod": pod})
    except Exception:  # noqa: BLE001 (no error may prevent the release of the nodes)
        logger.exception("the last lines could not be kept")


def _keep(backend: Backend, run_id: str, pod: str) -> None:
    try:
        text = kept_text(backend.read_log(pod, tail_lines=KEPT_LINES))
        if text:
            environment = read(ArtifactEnvironment)
            key = environment.key_of(run_id, f"logs/{pod}.log")
            objects.write(environment.artifact_bucket, key, text, content_type="text/plain; charset=utf-8")
    except Exception:  # noqa: BLE001 (the logs of the other pods may be readable)
        logger.exception("the last lines could not be kept", extra={"pod": pod})
