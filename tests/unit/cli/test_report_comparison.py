"""Several runs side by side, in rows and as a page."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path

import pytest
from typer.testing import CliRunner

from trainflow.cli.main import app
from trainflow.client.files import write_record
from trainflow.report.comparison import facts, fields, render_comparison
from trainflow.workflow.run_record import Cost, RunRecord, RunStatus, Training

BEGIN = datetime(2026, 11, 21, 9, tzinfo=UTC)
EVIL = "<b onclick=x>"


def record(num_nodes: int, throughput: float | None, **values: object) -> RunRecord:
    arguments = {
        "run_id": f"bert-{num_nodes}",
        "status": RunStatus.SUCCEEDED,
        "spec": {"name": "bert", "compute": {"num_nodes": num_nodes}},
        "instance_type": "trn1.32xlarge",
        "started_at": BEGIN,
        "ended_at": BEGIN + timedelta(minutes=5),
        "training": Training(steps=1500, last_loss=1.5, sequences_per_second=throughput),
    }
    return RunRecord.model_validate({**arguments, **values})


def test_a_fact_that_no_run_has_is_left_out() -> None:
    runs = [record(2, 6450.0), record(16, None, training=None, status=RunStatus.FAILED, ended_at=None)]
    assert facts(runs, now=BEGIN + timedelta(hours=1)) == [
        ("status", ["Succeeded", "Failed"]),
        ("nodes", ["2 × trn1.32xlarge", "16 × trn1.32xlarge"]),
        ("duration", ["5 min 00 s", "1 h 00 min"]),
        ("steps", ["1,500", ""]),
        ("last loss", ["1.5", ""]),
        ("sequences/s", ["6,450", ""]),
    ]
    assert fields(runs) == [("compute.num_nodes", ["2", "16"])]


def test_speeds_of_different_units_stand_in_rows_of_their_own() -> None:
    vision = Training(steps=1, last_metrics={"images_per_second": 812.0})
    found = dict(facts([record(2, 6450.0), record(2, None, training=vision)], now=BEGIN))
    assert (found["sequences/s"], found["images/s"]) == (["6,450", ""], ["", "812.0"])


def test_a_scaling_study_has_its_efficiency() -> None:
    runs = [record(2, 6450.0), record(16, 48_000.0, cost=Cost(usd=None, node_hours=1, region="mars-1"))]
    found = dict(facts(runs, now=BEGIN))
    assert found["sequences/s and node"] == ["3,225", "3,000"]
    assert found["scaling efficiency"] == ["100%", "93%"]
    assert found["cost (estimate)"] == ["", "–"]


def test_a_scaling_study_is_in_the_unit_of_its_programs() -> None:
    def vision(speed: float) -> Training:
        return Training(steps=1, sequences_per_second=speed, throughput_of="samples")

    found = dict(facts([record(1, None, training=vision(100.0)), record(2, None, training=vision(190.0))], now=BEGIN))
    assert (found["samples/s"], found["samples/s and node"]) == (["100.0", "190.0"], ["100.0", "95.0"])
    assert not [name for name in found if "sequences" in name]


class Page(HTMLParser):
    """Text, links and tags of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text: list[str] = []
        self.links: list[str] = []
        self.tags: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "a":
            self.links.append(str(dict(attrs)["href"]))

    def handle_data(self, data: str) -> None:
        self.text.append(data.strip())


def test_the_page_has_the_facts_and_a_link_to_each_report_that_is_there() -> None:
    runs = [record(2, 6450.0), record(16, 48_000.0, spec={"name": EVIL, "compute": {"num_nodes": 16}})]
    page = Page(render_comparison(runs, now=BEGIN, reports=["bert-2"]))
    assert set(page.links) == {"bert-2/report.html"}
    assert {"93%", "scaling efficiency", "compute.num_nodes", EVIL} <= set(page.text)
    assert "b" not in page.tags
    assert "script" not in page.tags


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for each in (record(2, 6450.0), record(16, 48_000.0)):
        (tmp_path / "out" / each.run_id).mkdir(parents=True)
        write_record(each, tmp_path / "out" / each.run_id / "run.json")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_command_compares_on_the_terminal_and_as_a_page(folder: Path) -> None:
    shown = CliRunner().invoke(app, ["compare", "bert-2", "bert-16", "--local"])
    assert shown.exit_code == 0, shown.output
    assert "scaling efficiency" in shown.output
    written = CliRunner().invoke(app, ["report", "bert-2", "bert-16", "--local"])
    assert written.output.strip() == "out/comparison.html"
    assert "93%" in (folder / "out" / "comparison.html").read_text(encoding="utf-8")
