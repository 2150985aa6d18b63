"""Restarts of a run's small jobs: the preflight's probe, staging, publishing."""

from __future__ import annotations

from trainflow.errors import TrainflowError
from trainflow.failures.error_table import error_list

MAX_ATTEMPTS = 3
"""Attempts of one small job. It costs minutes and no accelerator; a cause that three pods met will not go by itself."""


def attempt_after(failed: TrainflowError, attempt: int) -> int:
    """The next attempt of a small job that has failed, for what the failure table restarts a training for as well.

    Args:
        failed: The error of the job.
        attempt: Number of the attempt that failed, from 1.

    Raises:
        TrainflowError: The error of the job, if no other attempt is made.
    """
    if attempt >= MAX_ATTEMPTS or type(failed).__name__ not in error_list("restarted"):
        raise failed
    return attempt + 1
