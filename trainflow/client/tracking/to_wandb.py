"""Weights & Biases: a run of a project; `WANDB_MODE=offline` writes it to a folder for `wandb sync`.

W&B's own variables decide on the server, the credentials, the mode and the folder. Exporting a run again continues it:
W&B ignores steps that it has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainflow.client.tracking.exported_run import ExportedRun
from trainflow.client.tracking.trackers import TrackerRefused, package
from trainflow.workflow.run_record import RunStatus

WORKED = frozenset({RunStatus.RUNNING, RunStatus.SUCCEEDED})


def export(run: ExportedRun, *, project: str) -> str:
    """Write a run to a project.

    Args:
        run: The run.
        project: Name of the project, with `entity/` before it for another than the caller's.

    Returns:
        The address of the run's page, or the folder that `wandb sync` takes.

    Raises:
        TrackerMissing: If W&B's client is not installed.
        TrackerRefused: If W&B does not take the run.
    """
    wandb = package("wandb", extra="wandb")
    entity, _, name = project.rpartition("/")
    # Nothing of this machine belongs to the run: neither its load nor its repository, code and console.
    settings = wandb.Settings(
        console="off", disable_code=True, disable_git=True, silent=True, x_disable_meta=True, x_disable_stats=True
    )
    try:
        begun = wandb.init(
            entity=entity or None,
            project=name,
            id=run.run_id,
            name=run.run_id,
            group=run.name,
            config=dict(run.spec),
            resume="allow",
            settings=settings,
        )
        where = str(Path(begun.dir).parent) if begun.offline else str(begun.url)
        for point in run.points:
            begun.log({**point.figures, "_timestamp": point.logged_at.timestamp()}, step=point.step)
        begun.summary.update({**run.tags, "trainflow.status": run.status.value})
        _log_files(wandb, begun, run)
        begun.finish(exit_code=0 if run.status in WORKED else 1)
    except (wandb.errors.Error, OSError) as refused:
        raise TrackerRefused(f"W&B did not take the run: {str(refused).splitlines()[0]}") from None
    return where


def _log_files(wandb: Any, begun: Any, run: ExportedRun) -> None:
    if run.files:
        artifact = wandb.Artifact(run.run_id, type="run")
        for name, path in run.files.items():
            artifact.add_file(str(path), name=name)
        begun.log_artifact(artifact)
