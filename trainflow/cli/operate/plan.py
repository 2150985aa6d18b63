"""`trainflow plan`: what a spec would use, create and cost, and what would keep its run from starting."""

# Imports what it needs when it runs; see trainflow/cli/main.py.

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainflow.cli.exit_status import refuse
from trainflow.cli.json_output import AsJson, print_json
from trainflow.cli.operate.place import HOME, OUT, Home, Local, Out, PlaceName, name_of_place, open_reader
from trainflow.cli.spec_options import Overrides, SpecPath
from trainflow.errors import TrainflowError

if TYPE_CHECKING:
    from trainflow.client.local_runs import LocalRuns
    from trainflow.client.runs import DeployedRuns
    from trainflow.spec.run_spec import RunSpec
    from trainflow.workflow.planned_run import PlannedRun

REGION = "us-west-2"
"""Region whose prices are shown where none is named: a region that offers trn1."""

ONLY_A_DEPLOYMENT = "it changes by the hour, and only a deployment can be asked for it (--place)."
TWIN_HAS_NO_SPOT = "the twin has none."
NOT_OFFERED = "the Region offers none for these types."
"""Reason why the Spot price is unknown."""

NO_PLACE = "name the twin (--local) or a deployment (--place), which render it."

MAX_EARLIER = 20
"""Number of the newest successful runs that are searched for one of the same program."""


def plan(
    spec: SpecPath,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    override: Overrides = None,
    region: Annotated[
        str | None,
        typer.Option(
            envvar="AWS_REGION",
            help=f"Region whose prices count. Default: the deployment's, or {REGION}.",
            show_default=False,
        ),
    ] = None,
    objects: Annotated[
        bool,
        typer.Option("--objects", help="Print what the run would create, as YAML, and nothing else."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print what SPEC would use, create and cost, and what would keep it from starting. Creates nothing.

    Where a place is named, by --local, --place or a default, earlier runs are read for an estimate, and the place
    renders the objects and checks what its preflight checks without a pod. A deployment also adds present Spot prices.
    """
    from trainflow.cli.operate.shown import objects_text, plan_text
    from trainflow.client.code import require_code
    from trainflow.client.local_runs import LocalRuns
    from trainflow.client.plan import plan_of
    from trainflow.client.programs.ignored_checkpoint import ignored_checkpoint
    from trainflow.client.spec_file import read_spec
    from trainflow.spec.limits import require_limits_ahead
    from trainflow.workflow.run_status import RunStatus

    valid = read_spec(spec, override or ())
    require_limits_ahead(valid, now=datetime.now(UTC), region=region)
    left_out = require_code(valid.workload, beside=spec.parent)
    earlier, spot, planned, planned_trouble, asked = [], None, None, NO_PLACE, None
    spot_trouble: str | None = TWIN_HAS_NO_SPOT if local else ONLY_A_DEPLOYMENT
    place = place if local else name_of_place(place)
    if local or place is not None:
        reader = open_reader(local=local, place=place, out=out)
        asked = reader.name
        if not isinstance(reader, LocalRuns):
            region = region or reader.region
            try:
                spot = reader.spot_prices([valid.compute.instance_type, *valid.compute.fallback])
                spot_trouble = None if spot else NOT_OFFERED
            except TrainflowError as refused:
                spot_trouble = str(refused)
        ended = [run.run_id for run in reader.runs() if run.status is RunStatus.SUCCEEDED]
        earlier = [reader.record(run_id) for run_id in ended[:MAX_EARLIER]]
        try:
            planned, planned_trouble = _planned(valid, reader, spec.parent, out=out, home=home), ""
        except TrainflowError as refused:
            planned_trouble = str(refused)
    if objects:
        if planned is None:
            refuse(f"What the run would create is not known: {planned_trouble}")
        if not planned.jobs:
            refuse(" ".join(planned.problems))
        typer.echo(objects_text(planned), nl=False)
        return
    found = plan_of(
        valid,
        place=asked,
        region=region or REGION,
        earlier=earlier,
        of_twin=local,
        spot=spot,
        spot_trouble=spot_trouble,
        planned=planned,
        planned_trouble=planned_trouble or None,
    )
    if as_json:
        print_json(found.as_json())
    else:
        typer.echo(plan_text(found))
        for note in (left_out, ignored_checkpoint(valid, folder=spec.parent)):
            if note is not None:
                typer.echo(f"Note: {note}.")


def _planned(spec: RunSpec, reader: LocalRuns | DeployedRuns, beside: Path, *, out: Path, home: Path) -> PlannedRun:
    """Plan of the place; a twin is started for it."""
    from trainflow.client.code import pack
    from trainflow.client.local_runs import LocalRuns
    from trainflow.client.place import LOCAL, PlaceOptions, open_place

    code = pack(spec.workload, beside=beside, leave_out=(out, home))
    if not isinstance(reader, LocalRuns):
        return reader.plan(spec, code=code)
    with open_place(LOCAL, PlaceOptions(out=out, home=home, spec_folder=beside)) as twin:
        return twin.plan(spec, code=code)
