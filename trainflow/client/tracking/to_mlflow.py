"""MLflow: a run of an experiment, on any tracking server.

Exporting a run again completes it: the run is found by its tag, and the server keeps one value a step and time
(`SqlAlchemyStore.log_batch`). Parameters cannot change there, and those of a run do not.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from trainflow.client.tracking.exported_run import ExportedRun
from trainflow.client.tracking.trackers import TrackerRefused, package
from trainflow.workflow.run_record import RunStatus

STATUS = {
    RunStatus.RUNNING: "RUNNING",
    RunStatus.SUCCEEDED: "FINISHED",
    RunStatus.FAILED: "FAILED",
    RunStatus.TIMED_OUT: "FAILED",
    RunStatus.ABORTED: "KILLED",
}
"""Status of a run in MLflow's REST API (`RunStatus`)."""

MAX_METRICS, MAX_PARAMS, MAX_TAGS = 1000, 100, 100
"""Most of each in one call (MLflow's REST API, "Log Batch")."""

MAX_PARAM_LENGTH, MAX_TAG_LENGTH = 6000, 5000
"""Longest values (MLflow's REST API, "Data Limits")."""

RETRIES = "2"
"""Retries of a request to a server that does not answer. MLflow's own 7 take minutes before the first message."""

_T = TypeVar("_T")


def export(run: ExportedRun, *, uri: str, experiment: str) -> str:
    """Write a run to a tracking server.

    Args:
        run: The run.
        uri: The server, as MLflow names it: `http://…`, or what a plugin adds, such as SageMaker's ARN.
        experiment: Name of the experiment, which is created if it does not exist.

    Returns:
        The run's id in MLflow.

    Raises:
        TrackerMissing: If MLflow's client is not installed.
        TrackerRefused: If the server does not take the run.
    """
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", RETRIES)
    mlflow, entities = package("mlflow", extra="mlflow"), package("mlflow.entities", extra="mlflow")
    try:
        client = mlflow.MlflowClient(tracking_uri=uri)
        number = _begun(client, run, experiment)
        _log(client, entities, number, run)
        for name, path in run.files.items():
            folder, _, _ = name.rpartition("/")
            client.log_artifact(number, str(path), folder or None)
        _conclude(client, number, run)
    except (mlflow.exceptions.MlflowException, OSError) as refused:
        raise TrackerRefused(f"MLflow at {uri} did not take the run: {str(refused).splitlines()[0]}") from None
    return str(number)


def _begun(client: Any, run: ExportedRun, experiment: str) -> str:
    """The run's id in MLflow, of an earlier export if there was one."""
    found = client.get_experiment_by_name(experiment)
    number = found.experiment_id if found is not None else client.create_experiment(experiment)
    known = client.search_runs([number], filter_string=f"tags.`trainflow.run_id` = '{run.run_id}'", max_results=1)
    if known:
        return str(known[0].info.run_id)
    identity = {"trainflow.run_id": run.run_id}
    created = client.create_run(number, start_time=_milliseconds(run.started_at), tags=identity, run_name=run.run_id)
    return str(created.info.run_id)


def _log(client: Any, entities: Any, number: str, run: ExportedRun) -> None:
    parameters = [entities.Param(name, value[:MAX_PARAM_LENGTH]) for name, value in run.parameters.items()]
    tags = [entities.RunTag(name, value[:MAX_TAG_LENGTH]) for name, value in _tags(run).items()]
    metrics = [
        entities.Metric(name, value, _milliseconds(point.logged_at), point.step)
        for point in run.points
        for name, value in point.figures.items()
    ]
    for some in _pieces(parameters, MAX_PARAMS):
        client.log_batch(number, params=some)
    for some in _pieces(tags, MAX_TAGS):
        client.log_batch(number, tags=some)
    for some in _pieces(metrics, MAX_METRICS):
        client.log_batch(number, metrics=some)


def _tags(run: ExportedRun) -> dict[str, str]:
    """The run's tags, with those that MLflow's own pages show."""
    shown = {"mlflow.source.name": run.name, "mlflow.source.git.commit": run.tags.get("trainflow.git_commit")}
    return {**run.tags, **{name: value for name, value in shown.items() if value}}


def _conclude(client: Any, number: str, run: ExportedRun) -> None:
    if run.ended_at is None:
        client.update_run(number, status=STATUS[run.status])
    else:
        client.set_terminated(number, status=STATUS[run.status], end_time=_milliseconds(run.ended_at))


def _pieces(items: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    return (items[begin : begin + size] for begin in range(0, len(items), size))


def _milliseconds(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)
