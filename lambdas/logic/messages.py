"""What people are told: readable in an e-mail, on a phone."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lambdas.logic.fleet import IdleNodes, no_price, usd
from trainflow.errors import TrainflowError
from trainflow.links import execution_link, object_link
from trainflow.models.run import MetricsCursor
from trainflow.models.run_record import RunError, RunStatus

MAX_REASON_LENGTH = 2000
"""Of a refusal: what is wrong with a spec may quote much of it."""

LONGEST_TITLE = 60
"""Of an uploaded file in a subject, which has room for 99 characters; its end tells files apart."""


def subject(run_id: str, status: RunStatus) -> str:
    """The line that shows in an inbox."""
    return f"Trainflow: {run_id} {status}"


def message(
    run_id: str,
    status: RunStatus,
    *,
    arn: str,
    error: RunError | None,
    progress: MetricsCursor | None,
    artifacts: Mapping[str, Any] | None,
    folder: str | None,
) -> str:
    """The whole message, one fact a line.

    Args:
        run_id: The run.
        status: How it ended.
        arn: Its execution.
        error: Why it failed.
        progress: How far it got.
        artifacts: What was published of it.
        folder: s3://bucket/prefix/ of its record and report; None if they are not there.
    """
    lines = [f"Run: {run_id}", f"Status: {status}"]
    if error is not None:
        lines += [f"Error: {error.name}", f"What happened: {error.message}", f"What to do: {error.what_to_do}"]
    if progress is not None and progress.last_step is not None:
        lines.append(f"Steps: {progress.last_step}, loss {progress.first_loss} to {progress.last_loss}")
    if artifacts and artifacts.get("checkpoint"):
        lines.append(f"Checkpoint: {artifacts['checkpoint']}")
    return "\n".join([*lines, *_where_to_look(arn, folder)])


def _where_to_look(arn: str, folder: str | None) -> list[str]:
    """Where the run's report, record and execution are: pages of the console, and what a program can read."""
    lines = []
    if folder:
        lines += [f"Report: {object_link(f'{folder}report.html', arn)}", f"Files: {folder}report.html {folder}run.json"]
    return [*lines, f"Execution: {execution_link(arn)}", f"Its ARN: {arn}"]


def refusal(title: str, error: TrainflowError) -> tuple[str, str]:
    """Subject and message about a request that cannot be run."""
    name = title if len(title) <= LONGEST_TITLE else f"...{title[-LONGEST_TITLE:]}"
    lines = [
        f"Request: {title}",
        f"What happened: {str(error)[:MAX_REASON_LENGTH]}",
        f"What to do: {error.what_to_do}",
        "Nothing was started.",
    ]
    return f"Trainflow: {name} was refused", "\n".join(lines)


def had_run(title: str, run_id: str, status: RunStatus) -> tuple[str, str]:
    """Subject and message about a spec whose run is over."""
    lines = [
        f"Request: {title}",
        f"What happened: the run of this very spec, {run_id}, ended {status}. Nothing was started.",
        "What to do: to run it again, give the spec another name and upload it.",
    ]
    return f"Trainflow: {run_id} has run before", "\n".join(lines)


def stopped(
    run_id: str,
    status: RunStatus,
    *,
    arn: str,
    error_name: str | None,
    jobs: int,
    nodes: int,
    kept: bool,
    folder: str | None,
) -> str:
    """The message about a run that ended without its own tear-down: mostly, because somebody stopped it.

    Args:
        run_id: The run.
        status: How it ended.
        arn: Its execution.
        error_name: With which error, if Step Functions told one.
        jobs: How many were deleted.
        nodes: How many were given back.
        kept: Whether pods and nodes stay.
        folder: As in `message`.
    """
    if kept:
        done = "Pods and nodes stay, as the spec's teardown.on_failure asks; they go on costing money."
    else:
        done = f"Jobs deleted: {jobs}. Nodes given back: {nodes}."
    error = [f"Error: {error_name}"] if error_name else []
    return "\n".join([f"Run: {run_id}", f"Status: {status}", *error, done, *_where_to_look(arn, folder)])


def given_back(idle: IdleNodes, num_nodes: int, *, region: str, now: datetime) -> tuple[str, str]:
    """Subject and message about nodes that stood idle."""
    minutes = (now - idle.since).total_seconds() / 60
    cost = usd(idle.instance_type, num_nodes, now - idle.since, region=region)
    lines = [
        f"Nodes: {num_nodes} x {idle.instance_type}",
        f"What happened: no run claimed them for {minutes:.0f} minutes, so they were given back.",
        no_price(idle.instance_type, region=region)
        if cost is None
        else f"They cost about {cost:.2f} USD in that time, at the on-demand price.",
    ]
    return f"Trainflow: {num_nodes} idle {idle.instance_type} given back", "\n".join(lines)
