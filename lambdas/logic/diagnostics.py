"""Diagnostics of a failed run: the lines that decided, and the last ones, of the pods that failed first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any

from lambdas.logic.departures import JudgedPod, PodEvidence, judged_pods
from lambdas.logic.program_output import program_lines
from trainflow.workflow.log_line import LogLine

TAIL_LINES = 100
"""Lines at the end of each failed pod's log that the diagnosis searches, torchrun's report among them."""

LAST_LINES = 30
"""Lines of each failed pod's program that are kept: a Python traceback and what came before it."""

MAX_LINE_LENGTH = 300

KEPT_LINES = 1000
"""Last lines of a log that are kept when its pod is deleted."""

MAX_KEPT_LINE_LENGTH = 2000
"""Limit that keeps the stored part of a log at 2 MB of ASCII characters at most."""

MAX_KEPT_BYTES = 4 * KEPT_LINES * (MAX_KEPT_LINE_LENGTH + 50)
"""Most bytes of a stored log: a character has up to four, and a line begins with its time."""

PAYLOAD_LINES = 5
"""Lines of each pod that are passed through the state machine: its payload is for small facts, S3 holds the rest."""


def diagnoses(pods: Sequence[PodEvidence], *, first: str | None) -> list[dict[str, Any]]:
    """The diagnosis of each failed pod: of the one that failed first, then of the others in their order.

    Args:
        pods: The pods, with the last lines of their logs.
        first: The pod that the run's error names.
    """
    judged = judged_pods(pods, has_steps=True)
    judged.sort(key=lambda each: each.evidence.pod.name != first)
    return [_diagnosis(each) for each in judged]


def _diagnosis(judged: JudgedPod) -> dict[str, Any]:
    """One failed pod, with its lines, or with the reason why its log could not be read."""
    failed, pod = judged.evidence, judged.evidence.pod
    diagnosis = {
        "pod": pod.name,
        "node": pod.node,
        "exit_code": pod.exit_code,
        "reason": pod.end_reason,
        "evidence": list(judged.verdict.excerpt.lines),
        "last_lines": [line[:MAX_LINE_LENGTH] for line in program_lines(failed.lines[-TAIL_LINES:])][-LAST_LINES:],
    }
    return diagnosis if failed.unread is None else {**diagnosis, "log_unread": failed.unread[:MAX_LINE_LENGTH]}


def kept_text(lines: Iterable[LogLine]) -> str:
    """The content of a log file: the last lines with their times."""
    last = deque(lines, maxlen=KEPT_LINES)
    return "".join(f"{line.logged_at.isoformat()} {line.text[:MAX_KEPT_LINE_LENGTH]}\n" for line in last)


def kept_lines(text: str) -> tuple[str, ...]:
    """The lines of a log file without their times."""
    return tuple(line.partition(" ")[2] for line in text.removesuffix("\n").split("\n"))


def for_payload(diagnoses: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The diagnoses, short enough for the payload of the state machine."""
    return [
        {**diagnosis, **{name: diagnosis[name][-PAYLOAD_LINES:] for name in ("evidence", "last_lines")}}
        for diagnosis in diagnoses
    ]
