"""`trainflow export`: a run in an experiment tracker."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainflow.cli.exit_status import FAILED
from trainflow.cli.operate.place import HOME, OUT, Home, Local, Out, PlaceName, RunId, open_reader

if TYPE_CHECKING:
    from trainflow.client.place_names import NamedPlace

EXPERIMENT = "trainflow"
"""Default experiment of runs."""


def export(
    run: RunId,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    mlflow: Annotated[
        str | None, typer.Option(help="MLflow's tracking server, http://…", metavar="URI", show_default=False)
    ] = None,
    experiment: Annotated[
        str | None, typer.Option(help=f"Experiment in MLflow. Default: {EXPERIMENT}.", show_default=False)
    ] = None,
    wandb: Annotated[
        str | None, typer.Option(help="Project in Weights & Biases.", metavar="PROJECT", show_default=False)
    ] = None,
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Also everything that RUN has published, checkpoints included.")
    ] = False,
) -> None:
    """Write RUN to MLflow or Weights & Biases.

    Spec, metrics, record and report; credentials are those that the tracker's own client finds. Without --mlflow and
    --wandb it goes where the configuration file says for the place. The same command again completes what is there.

    Exit status: 0; 1 if a part of what RUN has published was not copied, because its name leads out of its folder.
    """
    from trainflow.cli.operate.copies import copied
    from trainflow.client.owned_folder import OwnedFolder
    from trainflow.client.place_names import read_names
    from trainflow.client.tracking import exported_run, to_mlflow, to_wandb

    given = Trackers(mlflow=mlflow, experiment=experiment, wandb=wandb)
    to = trackers(given, None if local else read_names().named(place))
    reader = open_reader(local=local, place=place, out=out, home=home)
    run_id = reader.describe(run).run_id
    with OwnedFolder("trainflow-export-") as folder:
        record = reader.record(run_id)
        files = {"run.json": Path(folder) / "run.json", "report.html": Path(folder) / "report.html"}
        files["run.json"].write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
        files["report.html"].write_text(reader.report(run_id), encoding="utf-8")
        wanted = [found for found in reader.artifacts(run_id) if found.name not in files] if artifacts else []
        paths = {found.name: copied(reader, found, Path(folder) / "artifacts") for found in wanted}
        files |= {name: path for name, path in paths.items() if path is not None}
        exported = exported_run(record, reader.steps(run_id), files)
        if to.mlflow is not None:
            number = to_mlflow.export(exported, uri=to.mlflow, experiment=to.experiment or EXPERIMENT)
            typer.echo(f"MLflow, experiment {to.experiment or EXPERIMENT}: run {number}")
        if to.wandb is not None:
            typer.echo(f"Weights & Biases: {to_wandb.export(exported, project=to.wandb)}")
    if None in paths.values():
        raise typer.Exit(FAILED)


@dataclass(frozen=True, kw_only=True)
class Trackers:
    """Destinations of exported runs."""

    mlflow: str | None = None
    experiment: str | None = None
    wandb: str | None = None


def trackers(given: Trackers, place: NamedPlace | None) -> Trackers:
    """The trackers that the options name; without such options, those of the place.

    Raises:
        typer.BadParameter: If neither names one.
    """
    of_place = Trackers(mlflow=place.mlflow, experiment=place.experiment, wandb=place.wandb) if place else Trackers()
    chosen = given if given.mlflow or given.wandb else of_place
    if chosen.mlflow is None and chosen.wandb is None:
        raise typer.BadParameter(
            "Name where to write: --mlflow URI, --wandb PROJECT, or both; or as `mlflow` or `wandb` of the place in "
            "~/.config/trainflow/config.toml."
        )
    return replace(chosen, experiment=given.experiment or of_place.experiment)
