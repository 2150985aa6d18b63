"""The recorded runs of `tests/assets/histories`, as the record's functions take them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from trainflow.observed.pod import Pod, read_pod
from trainflow.observed.step import Step, parse_metrics_line
from trainflow.record.build import build_record
from trainflow.record.history import ExecutionHistory
from trainflow.record.published import PeriodStatistics, compare
from trainflow.record.steps import kept_steps_of
from trainflow.workflow.run_record import RunRecord

FOLDER = Path(__file__).parents[2] / "assets" / "histories"


@dataclass(frozen=True, kw_only=True)
class RecordedRun:
    """What an observer met of one run."""

    run_id: str
    history: ExecutionHistory
    children: tuple[ExecutionHistory, ...]
    manifests: tuple[dict[str, Any], ...]
    log: tuple[str, ...]

    @cached_property
    def pods(self) -> Sequence[Pod]:
        return tuple(read_pod(manifest) for manifest in self.manifests)

    @cached_property
    def lines(self) -> Sequence[Step]:
        return tuple(step for line in self.log if (step := parse_metrics_line(line)) is not None)

    @property
    def end(self) -> datetime:
        return self.history.events[-1]["timestamp"]

    def record(self, **overrides: Any) -> RunRecord:
        lines = self.lines
        arguments: dict[str, Any] = {
            "run_id": self.run_id,
            "history": self.history,
            "children": self.children,
            "pods": self.pods,
            "kept": kept_steps_of(lines),
            "published": compare(lines, statistics_of(lines)) if lines else None,
            "now": self.end,
        }
        return build_record(**(arguments | overrides))


@cache
def recorded(name: str) -> RecordedRun:
    """The recorded run of that name: nobody changes it."""
    document = json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))
    return RecordedRun(
        run_id=document["run_id"],
        history=_history(document["execution"]),
        children=tuple(_history(child) for child in document["children"]),
        manifests=tuple(document["pods"]),
        log=tuple(document["rank0_log"]),
    )


def statistics_of(data: Sequence[Step], *, period_seconds: int = 1) -> list[PeriodStatistics]:
    """What CloudWatch makes of these data in periods of this length."""
    periods: dict[int, list[float]] = {}
    for datum in data:
        start = int(datum.logged_at.timestamp()) // period_seconds * period_seconds
        periods.setdefault(start, []).append(datum.loss)
    return [
        PeriodStatistics(datetime.fromtimestamp(start, UTC), period_seconds, len(losses), sum(losses))
        for start, losses in sorted(periods.items())
    ]


def _history(document: dict[str, Any]) -> ExecutionHistory:
    events = tuple({**event, "timestamp": datetime.fromisoformat(event["timestamp"])} for event in document["events"])
    return ExecutionHistory(arn=document["arn"], events=events)
