"""A log goes with its pod. So its last lines go to S3 before the pod does."""

from __future__ import annotations

import time

from lambdas.backends.backend import Backend
from lambdas.gateways import objects
from lambdas.handlers.environment import ArtifactEnvironment, read
from lambdas.handlers.task import logger
from lambdas.logic.diagnostics import KEPT_LINES, kept_text

KEEPING_SECONDS = 15.0
"""After which no further log is begun: the one before may hang for 20 more, and deleting has to fit in behind."""


def keep_last_lines(backend: Backend, run_id: str) -> None:
    """Put the last lines of rank 0 and of failed pods beside the run's artifacts, as `logs/<pod>.log`. Never raises.

    A log that cannot be read, because its node is lost for example, is no reason to go on paying for the others.
    """
    deadline = time.monotonic() + KEEPING_SECONDS
    try:
        for pod in backend.pods_to_diagnose(run_id):
            if time.monotonic() < deadline:
                _keep(backend, run_id, pod)
            else:
                logger.warning("there was no time to keep the last lines", extra={"pod": pod})
    except Exception:  # noqa: BLE001 (whatever it is, nodes that stay cost money)
        logger.exception("the last lines could not be kept")


def _keep(backend: Backend, run_id: str, pod: str) -> None:
    try:
        text = kept_text(backend.read_log(pod, tail_lines=KEPT_LINES))
        if text:
            environment = read(ArtifactEnvironment)
            key = environment.key_of(run_id, f"logs/{pod}.log")
            objects.write(environment.artifact_bucket, key, text, content_type="text/plain; charset=utf-8")
    except Exception:  # noqa: BLE001 (those of the other pods may be had)
        logger.exception("the last lines could not be kept", extra={"pod": pod})
