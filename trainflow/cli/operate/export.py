"""`trainflow export`: a run in an experiment tracker."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from trainflow.cli.operate.place import HOME, OUT, Home, Local, Out, PlaceName, RunId, open_reader

EXPERIMENT = "trainflow"
"""Experiment of runs for which none is named."""


def export(
    run: RunId,
    local: Local = False,
    place: PlaceName = None,
    out: Out = OUT,
    home: Home = HOME,
    mlflow: Annotated[
        str | None, typer.Option(help="MLflow's tracking server, http://…", metavar="URI", show_default=False)
    ] = None,
    experiment: Annotated[str, typer.Option(help="With --mlflow: its experiment.")] = EXPERIMENT,
    wandb: Annotated[
        str | None, typer.Option(help="Project in Weights & Biases.", metavar="PROJECT", show_default=False)
    ] = None,
    artifacts: Annotated[
        bool, typer.Option("--artifacts", help="Also everything that RUN has published, checkpoints included.")
    ] = False,
) -> None:
    """Write RUN to MLflow or Weights & Biases.

    Spec, metrics, record and report; credentials are those that the tracker's own client finds. The same command again
    completes what is there.
    """
    from trainflow.client.tracking import exported_run, to_mlflow, to_wandb

    if mlflow is None and wandb is None:
        raise typer.BadParameter("Name where to write: --mlflow URI, --wandb PROJECT, or both.")
    reader = open_reader(local=local, place=place, out=out, home=home)
    run_id = reader.describe(run).run_id
    with tempfile.TemporaryDirectory(prefix="trainflow-export-") as folder:
        record = reader.record(run_id)
        files = {"run.json": Path(folder) / "run.json", "report.html": Path(folder) / "report.html"}
        files["run.json"].write_text(record.model_dump_json(indent=2) + "\n", encoding="utf-8")
        files["report.html"].write_text(reader.report(run_id), encoding="utf-8")
        for found in reader.artifacts(run_id) if artifacts else ():
            if found.name not in files:
                reader.fetch(found, Path(folder) / "artifacts" / found.name)
                files[found.name] = Path(folder) / "artifacts" / found.name
        exported = exported_run(record, reader.steps(run_id), files)
        if mlflow is not None:
            number = to_mlflow.export(exported, uri=mlflow, experiment=experiment)
            typer.echo(f"MLflow, experiment {experiment}: run {number}")
        if wandb is not None:
            typer.echo(f"Weights & Biases: {to_wandb.export(exported, project=wandb)}")
