"""Task states `WriteRecord`, `WriteFailureRecord` and `WriteRejectionRecord`: write the run's record and report.

Only the state that sends the message with links to them comes later. CleanUp writes the record again when the execution
has ended.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from lambdas.handlers import recording
from lambdas.handlers.environment import read
from lambdas.handlers.task import task
from trainflow.deployment.environment import ArtifactEnvironment
from trainflow.record.failure import caught_error
from trainflow.workflow.run_record import RunStatus

MAX_WARNINGS = 5
"""Most warnings that the message about the run's end repeats; the record has all."""


class Event(BaseModel):
    name: str
    """Name of the execution: a refused run does not have a run id."""
    execution_arn: str
    status: RunStatus
    error: dict[str, Any] | None = None


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The folder of the record and the report, None for an execution without a run id of its own, and the record's
    warnings, for the message."""
    run_id = recording.own_run_id(event.name, event.execution_arn)
    if run_id is None:
        return {"folder": None, "warnings": []}
    error = caught_error(event.error) if event.error else None
    record = recording.write_record(run_id, event.execution_arn, status=event.status, error=error)
    return {"folder": read(ArtifactEnvironment).url_of(run_id), "warnings": record.warnings[:MAX_WARNINGS]}
