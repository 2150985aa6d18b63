"""Completion indexes: on a pod, and as the compact text in a Job's status (`0-2,4`)."""

from __future__ import annotations

from collections.abc import Iterable

from kubetwin.model.errors import Object

INDEX_KEY = "batch.kubernetes.io/job-completion-index"


def index_of(pod: Object) -> int | None:
    """The pod's completion index, if it has a readable one."""
    text = (pod["metadata"].get("annotations") or {}).get(INDEX_KEY, "")
    return int(text) if text.isdigit() else None


def parse_indexes(text: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, text.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def format_indexes(indexes: Iterable[int]) -> str:
    """Runs of three and more as a range; two neighbours stay a list, as the real controller writes them."""
    runs: list[list[int]] = []
    for index in sorted(indexes):
        if runs and index == runs[-1][-1] + 1:
            runs[-1].append(index)
        else:
            runs.append([index])
    return ",".join(_run(run) for run in runs)


def _run(run: list[int]) -> str:
    return f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run))
