"""`trainflow sweep`: what ended runs have left, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from trainflow.cli.exit_status import FAILED
from trainflow.cli.json_output import AsJson
from trainflow.cli.operate.place import HOME, OUT, Home, Local, Out, PlaceName, open_reader

if TYPE_CHECKING:
    from trainflow.workflow.leftovers import RunLeftovers, SweepReport

HEADER = ("RUN", "ENDED", "USD/HOUR", "NODES", "DONE", "WHAT")

WHY = {
    "kept": "kept, because the run's spec says so (teardown)",
    "ending": "its clean-up may be under way",
    "unknown": "no run of this deployment is known by this id; never deleted",
    "unseen": "Step Functions did not answer whether the run goes on",
}
"""Reasons why objects stay, by the state of their run."""

MAX_NAMED = 3
"""Things of a run that the text names; JSON has all."""


def sweep(
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="List it, and delete nothing.")] = False,
    as_json: AsJson = False,
) -> None:
    """Delete what ended runs have left: jobs, pods, services, claims of nodes, leases.

    The deployment does the same every five minutes. Runs that go on are never touched, nor is what a spec keeps, what
    belongs to no known run, or what a run has whose clean-up may be under way: 20 minutes after its end, or less where
    the run table says that the clean-up is over.

    Exit status: 0 if it was listed or deleted, 1 if a part of it could not be.
    """
    report = open_reader(local=local, place=place, out=out, home=home).sweep(delete=not dry_run)
    typer.echo(report.model_dump_json(indent=2) if as_json else report_text(report))
    for sentence in report.trouble:
        typer.echo(sentence, err=True)
    if report.trouble:
        raise typer.Exit(FAILED)


def report_text(report: SweepReport) -> str:
    """The report for people."""
    from trainflow.cli.operate.shown import table

    if not report.runs:
        return "Ended runs have left nothing."
    rows = [_row(run, deleted=report.deleted) for run in report.runs]
    left = [run for run in report.runs if run.state == "left"]
    return f"{table(HEADER, rows)}\n\n{_sum(left, deleted=report.deleted)}{_released(report)}"


def _row(run: RunLeftovers, *, deleted: bool) -> tuple[str, ...]:
    ended = f"{run.ended_at:%Y-%m-%d %H:%M} UTC" if run.ended_at else "-"
    nodes = f"{run.num_nodes} x {run.instance_type}" if run.num_nodes else "-"
    done = WHY.get(run.state.value) or ("deleted" if deleted else "would be deleted")
    names = [f"{each.kind} {each.name}" for each in run.objects]
    more = [f"and {len(names) - MAX_NAMED} more"] if len(names) > MAX_NAMED else []
    return run.run_id, ended, _usd(run.usd_per_hour), nodes, done, ", ".join([*names[:MAX_NAMED], *more])


def _released(report: SweepReport) -> str:
    nodes = ", ".join(f"{number} x {instance_type}" for instance_type, number in sorted(report.nodes_released.items()))
    return f" Released: {nodes}." if nodes else ""


def _usd(usd: float | None) -> str:
    return "unknown" if usd is None else f"{usd:.2f}"


def _sum(left: list[RunLeftovers], *, deleted: bool) -> str:
    """Summary of the sweep in one line."""
    if not left:
        return "Nothing was deleted." if deleted else "Nothing would be deleted now."
    known = sum(run.usd_per_hour or 0.0 for run in left)
    more = " and more, whose price is not known" if any(run.usd_per_hour is None for run in left) else ""
    runs = f"{len(left)} run{'' if len(left) == 1 else 's'}"
    if deleted:
        return f"Deleted what {runs} had left, for which nodes stayed at {known:.2f} USD an hour{more}."
    return f"{runs} left something, for which nodes stay at {known:.2f} USD an hour{more}."
