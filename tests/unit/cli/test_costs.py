"""`trainflow costs`: what the records of runs add up to."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.command_output import require_documented
from tests.fakes.runs import SPEC
from trainflow.cli.main import app
from trainflow.client.files import write_record
from trainflow.record.cost_sums import CostSum, GroupBy, cost_sum, cost_sums
from trainflow.workflow.owner import Owner, OwnerKind
from trainflow.workflow.run_record import Cost, RunRecord, RunStatus

ANA = Owner(kind=OwnerKind.CALLER, name="arn:aws:iam::123456789012:user/ana")
NIGHTLY = Owner(kind=OwnerKind.SCHEDULE, name="nightly")


def run(run_id: str, usd: float | None = None, hours: float = 0.0, **fields: Any) -> RunRecord:
    """The record of a run that ended in October unless the fields differ."""
    return RunRecord(
        **{
            "run_id": run_id,
            "status": RunStatus.SUCCEEDED,
            "spec": SPEC,
            "started_at": datetime(2026, 10, 31, 23, 30, tzinfo=UTC),
            "cost": Cost(usd=usd, node_hours=hours, region="us-west-2") if hours else None,
            **fields,
        }
    )


RUNS = (
    run("a", 100.0, 10.0, team="vision", owner=ANA, project="bert"),
    run("b", 50.5, 2.5, team="vision", owner=NIGHTLY, status=RunStatus.RUNNING),
    run("c", None, 4.0, team="speech", owner=ANA),
    run("d", 1.0, 0.5, owner=ANA, started_at=datetime(2026, 11, 1, tzinfo=UTC)),
    run("e", team="audio"),
)
"""One of them has no known price, one goes on, one held no nodes."""


def test_the_sums_of_teams_name_what_they_lack() -> None:
    nothing: dict[str, Any] = {"running": (), "unpriced": ()}
    assert cost_sums(RUNS, GroupBy.TEAM) == [
        CostSum(name="vision", runs=2, node_hours=12.5, usd=150.5, running=("b",), unpriced=()),
        CostSum(name=None, runs=1, node_hours=0.5, usd=1.0, **nothing),
        CostSum(name="speech", runs=1, node_hours=4.0, usd=None, running=(), unpriced=("c",)),
        CostSum(name="audio", runs=1, node_hours=0.0, usd=0.0, **nothing),
    ]
    total = cost_sum(None, RUNS)
    assert total == CostSum(name=None, runs=5, node_hours=17.0, usd=151.5, running=("b",), unpriced=("c",))


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        (GroupBy.OWNER, {ANA.name: 101.0, "schedule nightly": 50.5, "unknown": 0.0}),
        (GroupBy.PROJECT, {"bert": 100.0, None: 51.5}),
        (GroupBy.MONTH, {"2026-10": 150.5, "2026-11": 1.0}),
    ],
)
def test_runs_are_grouped_by_other_facts(by: GroupBy, expected: dict[str | None, float]) -> None:
    assert {each.name: each.usd for each in cost_sums(RUNS, by)} == expected


def test_the_months_are_in_their_order_and_in_utc() -> None:
    local = datetime.fromisoformat("2026-12-01T00:30:00+02:00")
    months = cost_sums([run("late", 7.0, 1.0, started_at=local), *RUNS], GroupBy.MONTH)
    assert [(each.name, each.runs) for each in months] == [("2026-10", 4), ("2026-11", 2)]


@pytest.fixture
def out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with these runs, and one whose twin was killed."""
    monkeypatch.chdir(tmp_path)
    for record in RUNS:
        write_record(record, tmp_path / "out" / record.run_id / "run.json")
    (tmp_path / "out" / "killed" / "logs").mkdir(parents=True)
    return tmp_path / "out"


@pytest.mark.usefixtures("out")
def test_the_table_marks_what_goes_on_and_what_is_not_known() -> None:
    assert CliRunner().invoke(app, ["costs", "--local"]).stdout.splitlines() == [
        "TEAM    RUNS  NODE HOURS  USD",
        "vision  2     12.50       150.50 +",
        "–       1     0.50        1.00",
        "speech  1     4.00        not known",
        "audio   1     0.00        0.00",
        "total   5     17.00       151.50 + *",
        "+ goes on, counted up to now: b",
        "* not in USD, because the price is not known: c",
        "not counted, because no record can be read: killed",
    ]


@pytest.mark.usefixtures("out")
def test_the_document_for_programs_is_as_documented() -> None:
    document = json.loads(
        CliRunner().invoke(app, ["costs", "--local", "--by", "owner", "--month", "2026-11", "--json"]).stdout
    )
    require_documented("costs", document)
    expected = {"runs": 1, "node_hours": 0.5, "usd": 1.0, "running": [], "unpriced": []}
    assert (document["groups"], document["total"]) == ([{"name": ANA.name, **expected}], expected)
    assert (document["month"], document["without_record"]) == ("2026-11", ["killed"])


@pytest.mark.parametrize(
    ("words", "sentence"),
    [(("--month", "2026-13"), "'2026-13' is not a month such as 2026-11."), (("--by", "cluster"), "cluster")],
)
def test_a_group_or_a_month_that_there_is_not_is_refused(out: Path, words: tuple[str, ...], sentence: str) -> None:
    answer = CliRunner().invoke(app, ["costs", "--local", "--out", str(out), *words])
    assert (answer.exit_code, answer.stdout) == (2, "")
    assert sentence in answer.stderr


def test_the_owners_are_in_the_list_if_there_are_several(out: Path) -> None:
    listed = CliRunner().invoke(app, ["list", "--local"]).stdout.splitlines()
    assert listed[0].split() == ["RUN", "STATUS", "STARTED", "DURATION", "OWNER", "TEAM"]
    (line,) = (line for line in listed if line.startswith("b "))
    assert line.split()[-3:] == ["schedule", "nightly", "vision"]
    for run_id in ("a", "b", "c", "e", "killed"):
        (out / run_id).rename(out.parent / run_id)
    assert "OWNER" not in CliRunner().invoke(app, ["list", "--local"]).stdout
