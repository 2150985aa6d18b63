"""The exit code of the rank that failed first, in the lines that its launcher prints.

torchrun, DeepSpeed and Composer start the ranks of a node, and end with an exit code of their own: how a rank ended is
in their reports only. The functions judge a failed job by it, and the supervisor decides about a restart in the pods.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

FIRST_SIGNAL_EXIT_CODE = 128
"""Exit codes above it are 128 + the signal that ended the process."""

SIGNALS_FROM_OUTSIDE = frozenset({135, 137, 139})
"""Exit codes by SIGBUS, SIGKILL and SIGSEGV. The other signals are also sent by a library that gives up (SIGABRT) and
by launchers (SIGTERM, SIGINT), and say less than what is in the log."""

_ROOT_CAUSE = re.compile(r"^(?:\[[^\]]{0,60}\]:?\s?)?\s*Root Cause\b")
_REPORTED_EXIT_CODE = re.compile(
    r"\b(?:exitcode\s{0,3}:|exits with return code =|crashed with exit code)\s{0,3}(-?\d{1,5})\b"
)
"""Exit code of a rank as torchrun, DeepSpeed and Composer report it: negative for a signal."""

_ERROR_FILE_CODE = re.compile(r'"errorCode"\s{0,3}:\s{0,3}"?(-?\d{1,5})\b')
"""Exit code of the first failed rank in the file TORCHELASTIC_ERROR_FILE of torchrun."""


def first_exit_code(lines: Iterable[str]) -> int | None:
    """The exit code of the rank that failed first, from a launcher's report or error file; None without one.

    Returns:
        128 + the signal's number for a rank that a signal ended, as a shell reports it.
    """
    codes: list[int] = []
    below_root_cause = False
    for text in lines:
        if _ROOT_CAUSE.match(text):
            below_root_cause = True
            codes.clear()
        if found := _ERROR_FILE_CODE.search(text):
            codes.insert(0, int(found[1]))
        elif found := _REPORTED_EXIT_CODE.search(text):
            codes.append(int(found[1]))
            if below_root_cause:
                break
    code = next((code for code in codes if code), None)
    return code if code is None or code > 0 else FIRST_SIGNAL_EXIT_CODE - code
