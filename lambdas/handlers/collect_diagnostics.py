"""Task state `CollectDiagnostics`: collects error and last lines before tear-down deletes the pods and their logs."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from lambdas.gateways import objects
from lambdas.handlers import backends
from lambdas.handlers.environment import read
from lambdas.handlers.failed_logs import FailedLogs
from lambdas.handlers.last_lines import kept_log
from lambdas.handlers.task import task
from lambdas.logic.departures import PodEvidence
from lambdas.logic.diagnostics import diagnoses, for_payload
from trainflow.deployment.environment import ArtifactEnvironment
from trainflow.record.failure import caught_error
from trainflow.workflow.run import Run


class Event(BaseModel):
    run: Run
    error: dict[str, Any]


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The explained error and a few last lines of each failed pod; S3 gets more of them.

    A log that cannot be read says why in place of its lines: it must not delay the release of the nodes.
    """
    environment, backend = read(ArtifactEnvironment), backends.connect(event.run.spec.compute.backend)
    logs = FailedLogs(backend, event.run.run_id, keeps=True)
    pods = [
        PodEvidence(pod, lines) if (lines := kept_log(event.run.run_id, pod.name)) else logs.read(pod)
        for pod in backend.failed_pods_of_run(event.run.run_id)
    ]
    caught = caught_error(event.error)
    found, error = diagnoses(pods, first=caught.pod), asdict(caught)
    key = environment.key_of(event.run.run_id, "diagnostics.json")
    document = {"run_id": event.run.run_id, "error": error, "pods": found}
    objects.write(environment.artifact_bucket, key, json.dumps(document, indent=2))
    return {"error": error, "diagnostics": for_payload(found)}
