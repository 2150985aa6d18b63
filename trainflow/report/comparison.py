"""Several runs side by side: the rows of a table for people, and a page of its own. The live page has their curves."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape

from trainflow.record.comparison import differing_fields, measured, scaling, value_text
from trainflow.record.wording import duration, rate, significant, speed_of, usd
from trainflow.report.page import STATUS_IN_WORDS, nodes_of
from trainflow.report.plain_markup import plain_value
from trainflow.report.published_figures import published_figure
from trainflow.workflow.run_record import RunRecord

EFFICIENCY = "scaling efficiency"
"""A row of scaling studies only."""

Row = tuple[str, list[str]]
"""A fact and its value for each run; empty where a run does not have it."""


def facts(records: Sequence[RunRecord], *, now: datetime) -> list[Row]:
    """Statuses and figures of the runs, and the efficiency of a scaling study; unknown facts are left out."""
    training = [record.training for record in records]
    published = [published_figure(record) for record in records]
    study = {run.run_id: run for run in scaling([measured(record) for record in records])}
    scaled = [study.get(record.run_id) for record in records]
    units = dict.fromkeys(run.throughput_of for run in study.values())
    losses = [each.last_loss if each else None for each in training]
    speeds = [
        speed_of(each.sequences_per_second, each.last_metrics, each.throughput_of) if each else "" for each in training
    ]
    rows = [
        ("status", [STATUS_IN_WORDS[record.status] for record in records]),
        ("nodes", [nodes_of(record) for record in records]),
        ("duration", [duration(((record.ended_at or now) - record.started_at).total_seconds()) for record in records]),
        ("steps", [f"{each.steps:,}" if each else "" for each in training]),
        ("last loss", ["" if loss is None else significant(loss) for loss in losses]),
        *_speeds(speeds),
        ("sequences/s, published", [rate(figure.sequences_per_second) if figure else "" for figure in published]),
        *((f"{of}/s and node", [rate(run.per_node) if run else "" for run in scaled]) for of in units),
        (EFFICIENCY, [f"{run.efficiency:.0%}" if run else "" for run in scaled]),
        ("restarts", [str(len(record.restarts) or "") for record in records]),
        ("cost (estimate)", [usd(record.cost.usd) if record.cost else "" for record in records]),
    ]
    return [(name, values) for name, values in rows if any(values)]


def _speeds(speeds: Sequence[str]) -> list[Row]:
    """A row for each unit that the programs use: figures of different units are not compared."""
    parts = [speed.partition(" ") for speed in speeds]
    units = dict.fromkeys(unit for _, _, unit in parts if unit)
    return [(unit, [figure if of == unit else "" for figure, _, of in parts]) for unit in units]


def fields(records: Sequence[RunRecord]) -> list[Row]:
    """The differing fields of the specs, by their dotted names."""
    differing = differing_fields([record.spec for record in records])
    return [(name, [value_text(value) for value in values]) for name, values in differing.items()]


def render_comparison(records: Sequence[RunRecord], *, now: datetime, reports: Collection[str] = ()) -> str:
    """The comparison as an HTML page.

    Args:
        records: Two records or more.
        now: The time for runs that go on.
        reports: Ids of the runs whose report lies in a folder of their name beside the page.
    """
    environment = Environment(
        loader=PackageLoader("trainflow.report", "."),
        autoescape=select_autoescape(default=True),
        undefined=StrictUndefined,
        finalize=plain_value,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    told = facts(records, now=now)
    return environment.get_template("comparison.html.j2").render(
        run_ids=[record.run_id for record in records],
        reports=set(reports),
        facts=told,
        fields=fields(records),
        is_study=any(name == EFFICIENCY for name, _ in told),
        style=(files("trainflow.report") / "report.css").read_text(encoding="utf-8"),
    )
