"""Sums of what runs have cost, by their team, owner, project or month: of the estimates in their records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC
from enum import StrEnum
from typing import TYPE_CHECKING

from trainflow.workflow.run_status import RunStatus

if TYPE_CHECKING:  # the command's options need the names of the groups only
    from trainflow.workflow.run_record import RunRecord


class GroupBy(StrEnum):
    """Facts that runs are grouped by."""

    TEAM = "team"
    OWNER = "owner"
    PROJECT = "project"
    MONTH = "month"


NAMES: Mapping[GroupBy, Callable[[RunRecord], str | None]] = {
    GroupBy.TEAM: lambda record: record.team,
    GroupBy.OWNER: lambda record: record.owner.in_words,
    GroupBy.PROJECT: lambda record: record.project,
    GroupBy.MONTH: lambda record: start_month(record),
}
"""Name of the group of a run; None for a run without a team or project."""


@dataclass(frozen=True, kw_only=True)
class CostSum:
    """Cost of a group of runs."""

    name: str | None
    """None for runs without a team or project, and for the sum of all groups."""
    runs: int
    node_hours: float
    """Hours times nodes that the runs have held, those without a known price included."""
    usd: float | None
    """Sum over the runs with a known price; None if none of them has one."""
    running: tuple[str, ...]
    """Ids of the runs that go on: they count with their cost up to now."""
    unpriced: tuple[str, ...]
    """Ids of the runs on nodes of an unknown price: `usd` lacks them."""


def start_month(record: RunRecord) -> str:
    """Month of a run's start, in UTC: `2026-11`. The whole run counts in it."""
    return f"{record.started_at.astimezone(UTC):%Y-%m}"


def cost_sums(records: Iterable[RunRecord], by: GroupBy) -> list[CostSum]:
    """A sum for each group: the months in their order, other groups with the largest sum first."""
    groups: dict[str | None, list[RunRecord]] = {}
    for record in records:
        groups.setdefault(NAMES[by](record), []).append(record)
    sums = [cost_sum(name, members) for name, members in groups.items()]
    if by is GroupBy.MONTH:
        return sorted(sums, key=lambda each: each.name or "")
    return sorted(sums, key=lambda each: (-(each.usd or 0.0), -each.node_hours, each.name or ""))


def cost_sum(name: str | None, records: Sequence[RunRecord]) -> CostSum:
    """The sum of a group. A run that held no nodes has cost nothing; records of the first versions lack their cost, and
    count in the same way."""
    costs = [record.cost for record in records if record.cost is not None]
    unpriced = [record.run_id for record in records if record.cost is not None and record.cost.usd is None]
    return CostSum(
        name=name,
        runs=len(records),
        node_hours=round(sum(cost.node_hours for cost in costs), 4),
        usd=None if records and len(unpriced) == len(records) else round(sum(cost.usd or 0.0 for cost in costs), 4),
        running=tuple(record.run_id for record in records if record.status is RunStatus.RUNNING),
        unpriced=tuple(unpriced),
    )
