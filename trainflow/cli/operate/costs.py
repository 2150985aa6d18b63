"""`trainflow costs`: what runs have cost, by team, owner, project or month."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer

from trainflow.cli.json_output import VERSION, AsJson, print_json
from trainflow.cli.operate.place import HOME, OUT, Home, Local, Out, PlaceName, open_reader
from trainflow.record.cost_sums import GroupBy

if TYPE_CHECKING:
    from trainflow.record.cost_sums import CostSum

MONTH = re.compile(r"\d{4}-(0[1-9]|1[0-2])")


def costs(
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    by: Annotated[GroupBy, typer.Option(help="What the runs are grouped by.")] = GroupBy.TEAM,
    month: Annotated[
        str | None,
        typer.Option(help="Only runs that began in this month, in UTC.", metavar="YYYY-MM", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Sum up what runs have cost, by team, owner, project or month.

    An estimate: the hours of the nodes that the runs held, at on-demand prices. Runs that go on count up to now. Runs
    without a known price or without a record are named, and not in the sums.
    """
    from trainflow.record.cost_sums import cost_sum, cost_sums, start_month

    if month is not None and MONTH.fullmatch(month) is None:
        raise typer.BadParameter(f"'{month}' is not a month such as 2026-11.", param_hint="--month")
    found = open_reader(local=local, place=place, out=out, home=home).records()
    records = [record for _, record in found if record is not None and month in (None, start_month(record))]
    without_record = [run_id for run_id, record in found if record is None]
    sums, total = cost_sums(records, by), cost_sum(None, records)
    if as_json:
        print_json(
            {
                "version": VERSION,
                "by": by.value,
                "month": month,
                "until": datetime.now(UTC).isoformat(),
                "groups": [asdict(each) for each in sums],
                "total": {name: value for name, value in asdict(total).items() if name != "name"},
                "without_record": without_record,
            }
        )
    elif not found:
        typer.echo("No runs yet.", err=True)
    else:
        typer.echo(costs_text(by, sums, total, without_record))


def costs_text(by: GroupBy, sums: Sequence[CostSum], total: CostSum, without_record: Sequence[str]) -> str:
    """The table for people, and the runs that its sums lack."""
    from trainflow.cli.operate.shown import table

    rows = [_cells(each.name or "–", each) for each in sums]
    shown = table((by.value.upper(), "RUNS", "NODE HOURS", "USD"), [*rows, _cells("total", total)])
    return "\n".join([shown, *_notes(total, without_record)])


def _cells(name: str, found: CostSum) -> tuple[str, str, str, str]:
    usd = "not known" if found.usd is None else f"{found.usd:,.2f}"
    marks = f"{' +' if found.running else ''}{' *' if found.unpriced and found.usd is not None else ''}"
    return name, f"{found.runs:,}", f"{found.node_hours:,.2f}", f"{usd}{marks}"


def _notes(total: CostSum, without_record: Sequence[str]) -> Iterator[str]:
    for sentence, runs in (
        ("+ goes on, counted up to now", total.running),
        ("* not in USD, because the price is not known", total.unpriced),
        ("not counted, because no record can be read", without_record),
    ):
        if runs:
            yield f"{sentence}: {', '.join(runs)}"
