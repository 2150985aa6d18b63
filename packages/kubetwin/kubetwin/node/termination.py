"""Termination message of a container."""

from __future__ import annotations

import contextlib
from pathlib import Path

from kubetwin.node.log_reader import LogOptions, read_log

_MAX_FILE_BYTES = 4096
_MAX_LOG_BYTES = 2048
_MAX_LOG_LINES = 80
"""The kubelet's limits (pkg/kubelet/container: MaxContainerTerminationMessage...)."""


def termination_message(file: Path, log: Path, *, policy: str, exit_code: int) -> str:
    """Content of the container's termination message file, or else the end of its log.

    Args:
        file: Host path of the file that `terminationMessagePath` names.
        log: The container's stored log.
        policy: `File`, or `FallbackToLogsOnError` to use the log where the file is empty.
        exit_code: Exit code of the container; only failed ones use the log.
    """
    message = b""
    with contextlib.suppress(OSError), file.open("rb") as written:
        message = written.read(_MAX_FILE_BYTES)
    if not message and policy == "FallbackToLogsOnError" and exit_code != 0:
        message = _last_bytes(log)
    return message.decode(errors="replace")


def _last_bytes(log: Path) -> bytes:
    text = b""
    with contextlib.suppress(OSError), log.open("rb") as stored:
        for block in read_log(stored, LogOptions(tail_lines=_MAX_LOG_LINES)):
            text = (text + block)[-_MAX_LOG_BYTES:]
    return text
