"""A failed pod's cause in one line: a pod leaves the last lines of its log, and another rank may have printed those."""

from __future__ import annotations

from contextlib import suppress
from functools import lru_cache
from itertools import dropwhile
from signal import Signals

from trainflow.failures.blocks import complete_lines
from trainflow.failures.noise import without_noise
from trainflow.protocol.launcher_report import FIRST_SIGNAL_EXIT_CODE
from trainflow.workflow.run_error import RunError

CUT_BYTES = 2000
"""Size of a message that may begin amid a line: the kubelet takes the last 2,048 bytes of a log."""

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
    said = _judged(message, exit_code) if "\n" in message.strip() else message.strip()
    return said or _signal(exit_code)


def _signal(exit_code: int | None) -> str:
    """The signal that an exit code stands for; empty for other codes, which say nothing by themselves."""
    with suppress(ValueError):
        return f"ended by {Signals((exit_code or 0) - FIRST_SIGNAL_EXIT_CODE).name}"
    return ""


@lru_cache(maxsize=CACHED_MESSAGES)
def _judged(message: str, exit_code: int | None) -> str:
    from trainflow.failures.judging import Evidence, judge

    lines = message.splitlines()
    if len(message.encode()) > CUT_BYTES:  # its first line may have lost its beginning, and the next ones their call
        lines = list(dropwhile(lambda line: line[:1].isspace(), lines[1:]))
    own = complete_lines([line for line in without_noise(lines) if line.strip()])
    if not own:
        return ""
    return judge(Evidence(lines=own, exit_code=exit_code)).quotation or own[-1].strip()
