"""A failed pod's cause in one line: a pod leaves the last lines of its log, and another rank may have printed those."""

from __future__ import annotations

from functools import lru_cache

from trainflow.failures.noise import without_noise
from trainflow.workflow.run_error import RunError

CACHED_MESSAGES = 512
"""Messages whose cause is known: a page is drawn every second, and has up to 64 pods."""


def cause(pod: str, message: str, exit_code: int | None, error: RunError | None) -> str:
    """The line by that a pod's failure is judged.

    Args:
        pod: The pod's name.
        message: Its message, of one line or more; may be empty.
        exit_code: Its exit code.
        error: The error of its run. The line that decided it comes from the pod's whole log.
    """
    if error is not None and error.pod == pod and error.line:
        return error.line
    return _judged(message, exit_code) if "\n" in message.strip() else message.strip()


@lru_cache(maxsize=CACHED_MESSAGES)
def _judged(message: str, exit_code: int | None) -> str:
    from trainflow.failures.judging import Evidence, judge

    own = [line for line in without_noise(message.splitlines()) if line.strip()]
    if not own:
        return ""
    return judge(Evidence(lines=own, exit_code=exit_code)).quotation or own[-1].strip()
