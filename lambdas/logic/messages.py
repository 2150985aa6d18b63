"""Messages to people, short enough for an e-mail read on a phone."""

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
"""Longest reason of a refusal in a message: an error about a spec may quote much of it."""

LONGEST_TITLE = 60
"""Longest name of an uploaded file in a subject, which has room for 99 characters. Its end is kept, because that
distinguishes files."""


def subject(run_id: str, status: RunStatus) -> str:
    """Subject of the message about the end of a run."""
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
    """The whole message, with one fact per line.

    Args:
        run_id: The run.
        status: How it ended.
        arn: ARN of its execution.
        error: Error of a failed run.
        progress: Progress of its training.
        artifacts: Result of publishing its artifacts.
        folder: s3://bucket/prefix/ of its record and report; None if they do not exist.
    """
    lines = [f"Run: {run_id}", f"Status: {status}"]
    if error is not None:
        lines += [f"Error: {error.name}", f"What happened: {error.message}", f"What to do: {error.what_to_do}"]
    if progress is not None and progress.last_step is not None:
        lines.append(f"Steps: {progress.last_step}, loss {progress.first_loss} to {progress.last_loss}")
    if artifacts and artifacts.get("checkpoint"):
        lines.append(f"Checkpoint: {artifacts['checkpoint']}")
    return "\n".join([*lines, *_links(arn, folder)])


def _links(arn: str, folder: str | None) -> list[str]:
    """Links to the run's report, record and execution: pages of the console for people, URLs and ARN for programs."""
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


def already_run(title: str, run_id: str, status: RunStatus) -> tuple[str, str]:
    """Subject and message about a spec whose run is over."""
    lines = [
        f"Request: {title}",
        f"What happened: the run of exactly this spec, {run_id}, ended {status}. Nothing was started.",
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
    """The message about a run that ended without its own tear-down, mostly because a person stopped it.

    Args:
        run_id: The run.
        status: How it ended.
        arn: ARN of its execution.
        error_name: Name of the error, if Step Functions reported one.
        jobs: Number of deleted jobs.
        nodes: Number of released nodes.
        kept: Whether pods and nodes stay.
        folder: s3://bucket/prefix/ of its record and report; None if they do not exist.
    """
    if kept:
        done = "Pods and nodes stay, as the spec's teardown.on_failure asks; they continue to cost money."
    else:
        done = f"Jobs deleted: {jobs}. Nodes released: {nodes}."
    error = [f"Error: {error_name}"] if error_name else []
    return "\n".join([f"Run: {run_id}", f"Status: {status}", *error, done, *_links(arn, folder)])


def idle_nodes_released(idle: IdleNodes, num_nodes: int, *, region: str, now: datetime) -> tuple[str, str]:
    """Subject and message about idle nodes that were released."""
    minutes = (now - idle.since).total_seconds() / 60
    cost = usd(idle.instance_type, num_nodes, now - idle.since, region=region)
    lines = [
        f"Nodes: {num_nodes} x {idle.instance_type}",
        f"What happened: no run claimed them for {minutes:.0f} minutes, so they were released.",
        no_price(idle.instance_type, region=region)
        if cost is None
        else f"They cost about {cost:.2f} USD in that time, at the on-demand price.",
    ]
    return f"Trainflow: {num_nodes} idle {idle.instance_type} released", "\n".join(lines)
