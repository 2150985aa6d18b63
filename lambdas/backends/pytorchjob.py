"""Backend `pytorchjob`: a PyTorchJob of the Kubeflow training operator (v1), which makes a Service for every pod."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from lambdas.backends.kubernetes import pods
from lambdas.backends.kubernetes.kind import JobKind
from lambdas.backends.kubernetes.status import count, ended_by_condition, time_of, unfinished
from lambdas.logic.jobs import Job
from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.deployment.kubernetes_names import FIRST_NODE_RANK_LABEL
from trainflow.observed.job import JobStatus
from trainflow.spec.run_spec import Elastic
from trainflow.workflow.run import JobRef

DESCRIPTION = KUBERNETES_KINDS["pytorchjob"]

PORT_NAME = "pytorchjob-port"
"""The port of this name becomes MASTER_PORT and the Services' port."""


def render(job: Job) -> list[dict[str, Any]]:
    """The object to create.

    Pods stay when the job has ended (`cleanPodPolicy: None`): their logs show the reason. Tear-down deletes them.
    """
    run_policy: dict[str, Any] = {"cleanPodPolicy": "None", "ttlSecondsAfterFinished": pods.KEPT_SECONDS}
    if job.elastic is not None:
        spec: dict[str, Any] = {
            "elasticPolicy": _elastic_policy(job, job.elastic),
            "runPolicy": run_policy | {"backoffLimit": job.elastic.max_restarts},
            # A pod ended by a signal is recreated; an error of the program itself fails the job.
            "pytorchReplicaSpecs": {"Worker": _replicas(job, job.ref.num_nodes, restart_policy="ExitCode")},
        }
    else:
        spec = {"runPolicy": run_policy, "pytorchReplicaSpecs": _master_and_workers(job)}
    return [
        {
            "apiVersion": DESCRIPTION.api_version,
            "kind": DESCRIPTION.kind,
            "metadata": pods.metadata(job),
            "spec": spec,
        }
    ]


def _elastic_policy(job: Job, elastic: Elastic) -> dict[str, Any]:
    """The same values as on the command line, for the operator and for people who read the job."""
    return {
        "minReplicas": elastic.min_nodes,
        "maxReplicas": elastic.max_nodes,
        "maxRestarts": elastic.max_restarts,
        "rdzvBackend": "c10d",
        "rdzvPort": job.port,
        "rdzvId": job.ref.name,
    }


def _master_and_workers(job: Job) -> dict[str, Any]:
    replicas = {"Master": _replicas(job, 1, restart_policy="Never")}
    if job.ref.num_nodes > 1:
        workers = _replicas(job, job.ref.num_nodes - 1, restart_policy="Never")
        # The operator counts workers from 0, although the master is node 0.
        workers["template"]["metadata"]["labels"][FIRST_NODE_RANK_LABEL] = "1"
        replicas["Worker"] = workers
    return replicas


def _replicas(job: Job, count: int, *, restart_policy: str) -> dict[str, Any]:
    spec = pods.pod_spec(job)
    spec["containers"][0]["ports"] = [{"name": PORT_NAME, "containerPort": job.port}]
    return {"replicas": count, "restartPolicy": restart_policy, "template": pods.template(job, spec)}


def read_status(job: JobRef, status: Mapping[str, Any], submitted_at: datetime | None) -> JobStatus:
    """Status of the job, from the operator's conditions and counters."""
    if (ended := ended_by_condition(status, success="Succeeded", submitted_at=submitted_at)) is not None:
        return ended
    replicas: Mapping[str, Any] = status.get("replicaStatuses") or {}
    running = sum(count(each, "active", "succeeded", "failed") for each in replicas.values())
    return unfinished(running >= job.gang_size, submitted_at, started_at=time_of(status.get("startTime")))


KIND = JobKind(description=DESCRIPTION, make_objects=render, read_status=read_status)
