"""What people are told when a run ends: readable in an e-mail, on a phone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lambdas.models.run import MetricsCursor
from lambdas.models.run_record import RunError, RunStatus


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
) -> str:
    """The whole message, one fact a line."""
    lines = [f"Run: {run_id}", f"Status: {status}"]
    if error is not None:
        lines += [f"Error: {error.name}", f"What happened: {error.message}", f"What to do: {error.what_to_do}"]
    if progress is not None and progress.last_step is not None:
        lines.append(f"Steps: {progress.last_step}, loss {progress.first_loss} to {progress.last_loss}")
    if artifacts and artifacts.get("checkpoint"):
        lines.append(f"Checkpoint: {artifacts['checkpoint']}")
    lines.append(f"Execution: {arn}")
    return "\n".join(lines)
