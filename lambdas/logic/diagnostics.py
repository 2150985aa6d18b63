"""Diagnostics of a failed run: the last lines of its pods' logs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from lambdas.logic.program_output import program_lines
from trainflow.models.log_line import LogLine
from trainflow.observed.pod import Pod

TAIL_LINES = 100
"""Lines of each failed pod's log that are read, torchrun's report among them."""

LAST_LINES = 30
"""Lines of each failed pod's program that are kept: a Python traceback and what came before it."""

MAX_LINE_LENGTH = 300

KEPT_LINES = 1000
"""Last lines of a log that are kept when its pod is deleted."""

MAX_KEPT_LINE_LENGTH = 2000
"""Limit that keeps the stored part of a log at 2 MB at most."""

PAYLOAD_LINES = 5
"""Lines of each pod that are passed through the state machine: its payload is for small facts, S3 holds the rest."""


def pod_diagnosis(pod: Pod, lines: Iterable[str], *, unread: str | None = None) -> dict[str, Any]:
    """The diagnosis of one failed pod, with its last lines, or with the reason why its log could not be read."""
    diagnosis = {
        "pod": pod.name,
        "node": pod.node,
        "exit_code": pod.exit_code,
        "reason": pod.end_reason,
        "last_lines": [line[:MAX_LINE_LENGTH] for line in program_lines(lines)][-LAST_LINES:],
    }
    return diagnosis if unread is None else {**diagnosis, "log_unread": unread[:MAX_LINE_LENGTH]}


def kept_text(lines: Iterable[LogLine]) -> str:
    """The content of a log file: lines with their times."""
    return "".join(f"{line.logged_at.isoformat()} {line.text[:MAX_KEPT_LINE_LENGTH]}\n" for line in lines)


def for_payload(diagnoses: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The diagnoses, short enough for the payload of the state machine."""
    return [{**diagnosis, "last_lines": diagnosis["last_lines"][-PAYLOAD_LINES:]} for diagnosis in diagnoses]
