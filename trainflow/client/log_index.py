"""The pods whose logs an observer writes, by their place in the run: a twin that is killed leaves no record of it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from trainflow.observed.pod import Pod
from trainflow.workflow.run import Stage

FILE_NAME = "pods.jsonl"
"""File beside the logs, with a line for each pod in the order of their first lines."""


@dataclass(frozen=True, kw_only=True)
class IndexedLog:
    """Place of a pod in its run."""

    pod: str
    stage: str
    attempt: int
    index: int


def add_log(folder: Path, pod: Pod) -> None:
    """Add a pod to the index of a folder.

    Raises:
        OSError: If it cannot be written.
    """
    entry = IndexedLog(pod=pod.name, stage=pod.stage, attempt=pod.attempt, index=pod.index)
    with (folder / FILE_NAME).open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(entry)) + "\n")


def pod_of_rank(folder: Path, rank: int) -> str | None:
    """The pod of a rank of the training's newest attempt, or of the newest job before it; None if it is not known."""
    logs = list(_entries(folder / FILE_NAME))
    trained = [log for log in logs if log.stage == Stage.TRAINING] or logs[-1:]
    newest = [log for log in trained if (log.stage, log.attempt) == (trained[-1].stage, trained[-1].attempt)]
    return next((log.pod for log in reversed(newest) if log.index == rank), None)


def _entries(path: Path) -> Iterator[IndexedLog]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return
    for line in lines:
        try:
            yield IndexedLog(**json.loads(line))
        except (ValueError, TypeError):  # the process was killed while it wrote the line
            continue
