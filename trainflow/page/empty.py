"""Sentences for a page before its first curve: the present activity, and its length in other runs."""

from __future__ import annotations

from collections.abc import Mapping

from trainflow.observed.run_state import RunState
from trainflow.page.strip import strip
from trainflow.record.situation import situation
from trainflow.record.wording import count, duration

Usual = Mapping[str, tuple[float, int]]
"""Median length of each phase in seconds, and the number of runs that had it."""


def expectation(run: RunState, usual: Usual) -> str:
    """The present activity, its length so far, and its length in the runs that are known here and ended well."""
    now = next((phase for phase in strip(run) if phase.tone == "current"), None)
    if now is None:
        return ""
    in_words = situation(run)
    sentence = f"Now: {in_words.headline}, for {now.time}. {in_words.sentence}".strip()
    if now.name not in usual:
        return sentence
    seconds, num_runs = usual[now.name]
    return f"{sentence} This phase usually takes {duration(seconds)} (median of {count(num_runs, 'run')} here)."
