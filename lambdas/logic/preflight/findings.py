"""Findings of the preflight: problems, which stop the run, and notes on what could not be checked."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from trainflow.errors import PreflightFailed

MAX_SENTENCE = 500
"""Longest quotation of a kubelet or a program."""

MAX_NOTES_BYTES = 2048
"""Limit of all notes together, which are stored in the execution's history."""


@dataclass(frozen=True)
class Problem:
    """One sentence that names the field at fault and what to do: the run cannot start."""

    sentence: str


@dataclass(frozen=True)
class Note:
    """One sentence about what was not checked, and why: the run continues."""

    sentence: str


Finding = Problem | Note


def require_no_problem(findings: Iterable[Finding]) -> None:
    """Require that no finding is a problem.

    Raises:
        PreflightFailed: If the run cannot start. The message has one line per problem.
    """
    found = problems(findings)
    if not found:
        return
    if len(found) == 1:
        raise PreflightFailed(found[0])
    lines = [f"{number}. {sentence}" for number, sentence in enumerate(found, start=1)]
    raise PreflightFailed("\n".join([f"This run could not start for {len(found)} reasons:", *lines]))


def problems(findings: Iterable[Finding]) -> list[str]:
    """The problems' sentences, each once."""
    return list(dict.fromkeys(found.sentence for found in findings if isinstance(found, Problem)))


def notes(findings: Iterable[Finding]) -> list[str]:
    """The notes' sentences, as many as fit."""
    kept: list[str] = []
    for sentence in dict.fromkeys(shortened(found.sentence) for found in findings if isinstance(found, Note)):
        if len(json.dumps([*kept, sentence], ensure_ascii=False).encode()) > MAX_NOTES_BYTES:
            break
        kept.append(sentence)
    return kept


def shortened(text: str) -> str:
    """Text on one line, no longer than a sentence may be."""
    words = " ".join(text.split())
    return words if len(words) <= MAX_SENTENCE else f"{words[: MAX_SENTENCE - 1]}…"
