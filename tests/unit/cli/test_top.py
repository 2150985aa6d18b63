"""The screen of all running runs."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from typing import cast

from trainflow.cli.operate.top import active_runs, table_text
from trainflow.client.place import PlaceRefused, RunReader, RunSummary
from trainflow.observed.run_state import RunState
from trainflow.observed.step import Step
from trainflow.workflow.run_cost import Cost
from trainflow.workflow.run_status import RunStatus

NOW = datetime(2026, 11, 22, 9, tzinfo=UTC)


def step(number: int, *, loss: float = 2.0, seconds_ago: float = 0.0) -> Step:
    at = NOW - timedelta(seconds=seconds_ago)
    return Step(logged_at=at, epoch=0, step=number, loss=loss, learning_rate=None, throughput=6450.0)


class Reader:
    """A place with a run that trains, one that has just ended, one that cannot be read, and an older one."""

    def runs(self) -> list[RunSummary]:
        statuses = {"trains": RunStatus.RUNNING, "ends": RunStatus.RUNNING, "hidden": RunStatus.RUNNING}
        statuses |= {"older": RunStatus.FAILED}
        return [
            RunSummary(run_id=run_id, status=status, started_at=NOW - timedelta(minutes=90))
            for run_id, status in statuses.items()
        ]

    def details(self, run_id: str) -> RunState:
        if run_id == "hidden":
            raise PlaceRefused("These credentials may not call states:GetExecutionHistory.")
        if run_id == "ends":
            return RunState(run_id=run_id, status=RunStatus.SUCCEEDED, observed_at=NOW, started_at=NOW)
        return RunState(
            run_id=run_id,
            status=RunStatus.RUNNING,
            observed_at=NOW,
            started_at=NOW - timedelta(minutes=90),
            state="WatchTraining",
            steps=(step(1500 - 26625 // 121, seconds_ago=60), step(1500, loss=math.nan)),
            total_steps=28125,
            cost=Cost(usd=64.5, node_hours=3.0, region="us-west-2"),
        )


def test_runs_that_go_on_are_shown_and_one_that_cannot_be_read_says_why() -> None:
    rows = active_runs(cast(RunReader, Reader()))
    refused = "not known: These credentials may not call states:GetExecutionHistory."
    cells = [line.split("  ") for line in table_text(rows, NOW).splitlines()[1:]]
    rest = ("2 h 01 min", "64.50 USD", "1 h 30 min")
    assert [[cell.strip() for cell in line if cell.strip()] for line in cells] == [
        ["trains", "Training", "1,500/28,125", "NaN", "6,450 sequences/s", *rest],
        ["hidden", refused, "1 h 30 min"],
    ]
    documents = [row.as_json() for row in rows]
    assert (documents[0]["loss"], documents[0]["cost_usd"]) == ("nan", 64.5)
    assert documents[1] == {
        "run_id": "hidden",
        "status": "RUNNING",
        "started_at": (NOW - timedelta(minutes=90)).isoformat(),
        "trouble": "These credentials may not call states:GetExecutionHistory.",
    }


def test_an_idle_place_says_so() -> None:
    assert table_text([], NOW) == "No run goes on."
