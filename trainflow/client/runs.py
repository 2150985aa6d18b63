"""The runs of one deployment, through the APIs of AWS and Kubernetes alone: also those of the twin, which has both."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from trainflow.client.observe import RunObserver, RunSnapshot
from trainflow.client.observe.cluster import KubernetesPods, PodSource
from trainflow.client.observe.slurm import SlurmJobs
from trainflow.client.place import FollowedRun, RunNotFound, RunSummary, new_run_id
from trainflow.kubernetes.api import KubernetesApi
from trainflow.models.backends import KUBERNETES_KINDS
from trainflow.models.run_record import RunError, RunRecord, RunStatus
from trainflow.models.run_spec import RunSpec, parse_run_spec, with_present_names
from trainflow.protocol.metrics_line import StepMetrics
from trainflow.record.steps import FILE_NAME as STEPS_FILE
from trainflow.record.steps import KeptSteps, kept_steps_from_json

STOP_SECONDS = 30.0
"""Longest wait for an execution to end, and again for the clean-up: as long as a slow call and its retry."""

POLL_SECONDS = 0.5
"""Time between two polls of an execution's history."""


class DeployedRuns:
    """A `Place` over a deployment's state machine, bucket and cluster."""

    def __init__(
        self,
        *,
        client: Callable[[str], Any],
        state_machine_arn: str,
        deployment: str,
        artifact_bucket: str,
        kubernetes: Callable[[], KubernetesApi],
        namespace: str = "training",
        poll_seconds: float = POLL_SECONDS,
    ) -> None:
        """Makes no request yet.

        Args:
            client: A boto3 client of a service.
            state_machine_arn: The training workflow.
            deployment: Name of the deployment, a dimension of its metrics.
            artifact_bucket: Where what runs leave is kept.
            kubernetes: Connects to the cluster; called where a run has pods.
            namespace: Namespace of the pods.
            poll_seconds: Time between two polls of an execution's history.
        """
        self._client, self._stepfunctions = client, client("stepfunctions")
        self._state_machine_arn, self._deployment, self._bucket = state_machine_arn, deployment, artifact_bucket
        self._kubernetes, self._namespace, self._poll_seconds = kubernetes, namespace, poll_seconds

    def start(self, spec: RunSpec, *, run_id: str | None = None) -> str:
        """See `Place`.

        Args:
            spec: What to run.
            run_id: Another id than a new one; the same id and spec twice start one run.
        """
        name = run_id or new_run_id(spec, datetime.now(UTC))
        self._stepfunctions.start_execution(
            stateMachineArn=self._state_machine_arn, name=name, input=spec.model_dump_json()
        )
        return name

    def runs(self) -> list[RunSummary]:
        """See `Place`."""
        pages = self._stepfunctions.get_paginator("list_executions").paginate(stateMachineArn=self._state_machine_arn)
        found = [_summary(execution) for page in pages for execution in page["executions"]]
        return sorted(found, key=lambda run: run.started_at, reverse=True)

    def describe(self, run_id: str) -> RunSummary:
        """See `Place`."""
        return _summary(self._execution(run_id))

    def follow(self, run_id: str, *, log_dir: Path) -> FollowedRun:
        """See `Place`."""
        execution = self._execution(run_id)
        observer = RunObserver(
            stepfunctions=self._stepfunctions,
            cloudwatch=self._client("cloudwatch"),
            pods=self._pods_of(run_id, parse_run_spec(with_present_names(json.loads(execution["input"])))),
            run_id=run_id,
            execution_arn=execution["executionArn"],
            deployment=self._deployment,
            log_dir=log_dir,
            poll_seconds=self._poll_seconds,
        )
        return ObservedRun(self, run_id, observer)

    def stop(self, run_id: str, *, reason: RunError) -> None:
        """See `Place`. What the run holds is released by the rule for executions that are stopped."""
        arn = self._execution(run_id)["executionArn"]
        self._stepfunctions.stop_execution(executionArn=arn, error=reason.name, cause=reason.message)
        deadline = time.monotonic() + STOP_SECONDS
        while self.describe(run_id).status is RunStatus.RUNNING and time.monotonic() < deadline:
            time.sleep(0.1)
        self.settle()

    def settle(self) -> None:
        """Wait for what the end of a run triggers, where the place can tell that it is done: AWS cannot."""

    def kept_steps(self, run_id: str) -> KeptSteps | None:
        """The steps that the workflow kept of a run; None if there are none."""
        s3 = self._client("s3")
        try:
            found = s3.get_object(Bucket=self._bucket, Key=f"runs/{run_id}/{STEPS_FILE}")
        except s3.exceptions.NoSuchKey:
            return None
        return kept_steps_from_json(found["Body"].read())

    def _pods_of(self, run_id: str, spec: RunSpec) -> PodSource:
        if spec.compute.backend in KUBERNETES_KINDS:
            return KubernetesPods(self._kubernetes(), self._namespace)
        return SlurmJobs(self._client("s3"), bucket=self._bucket, run_id=run_id)

    def _execution(self, run_id: str) -> Any:
        arn = f"{self._state_machine_arn.replace(':stateMachine:', ':execution:')}:{run_id}"
        try:
            return self._stepfunctions.describe_execution(executionArn=arn)
        except self._stepfunctions.exceptions.ExecutionDoesNotExist:
            raise RunNotFound(f"There is no run '{run_id}' in the deployment '{self._deployment}'.") from None


class ObservedRun:
    """A `FollowedRun` of a deployment."""

    def __init__(self, place: DeployedRuns, run_id: str, observer: RunObserver) -> None:
        self._place, self._run_id, self._observer = place, run_id, observer

    def __enter__(self) -> ObservedRun:
        self._observer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._observer.stop()

    def snapshot(self) -> RunSnapshot:
        """See `FollowedRun`."""
        return self._observer.snapshot()

    def is_finished(self) -> bool:
        """See `FollowedRun`."""
        return self._place.describe(self._run_id).status is not RunStatus.RUNNING

    def record(self, *, aborted: RunError | None = None) -> RunRecord:
        """See `FollowedRun`."""
        # The end of the execution has a record written of it; this one is made of the same facts and what was observed.
        self._place.settle()
        return self._observer.record(
            status=RunStatus.ABORTED if aborted else None,
            error=aborted,
            kept=self._place.kept_steps(self._run_id),
        )

    def steps(self) -> list[StepMetrics]:
        """See `FollowedRun`."""
        return self._observer.steps()


def _summary(execution: Any) -> RunSummary:
    return RunSummary(
        run_id=execution["name"],
        status=RunStatus(execution["status"]),
        started_at=execution["startDate"],
        ended_at=execution.get("stopDate"),
    )
