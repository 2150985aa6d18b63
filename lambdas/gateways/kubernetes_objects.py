"""Conversion of the API's objects and logs to plain data types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from trainflow.models.job_status import WorkerPod
from trainflow.models.kubernetes_names import CLAIM_LABEL, RUN_LABEL
from trainflow.models.log_line import LogLine
from trainflow.models.training_nodes import Claim


def pending_reason(pod: Any) -> str | None:
    """The reason why a pod is pending, as its kubelet or the scheduler reports it; None if neither does."""
    status = pod.get("status", {})
    for container in (*(status.get("initContainerStatuses") or ()), *(status.get("containerStatuses") or ())):
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("message"):
            return f"{waiting.get('reason')}: {waiting['message']}"
    for condition in status.get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return str(condition.get("message"))
    return None


def claim_of(config_map: Any) -> Claim:
    """The claim that a ConfigMap stores."""
    labels = config_map["metadata"]["labels"]
    return Claim(
        name=config_map["metadata"]["name"],
        run_id=labels[RUN_LABEL],
        instance_type=labels[CLAIM_LABEL],
        num_nodes=int(config_map["data"]["num_nodes"]),
        created_at=config_map["metadata"].get("creationTimestamp") or "",
    )


def grants_name(instance_type: str) -> str:
    """Name of the ConfigMap with the grants of an instance type."""
    return f"granted-{instance_type}"


def worker_pod(pod: Any) -> WorkerPod:
    """A pod of a job, with the result of its container, or of an init container that failed before it."""
    status = pod.get("status", {})
    inits = (_terminated(container) for container in status.get("initContainerStatuses") or ())
    failed = next((ended for ended in inits if ended.get("exitCode")), None)
    terminated = failed or _terminated(next(iter(status.get("containerStatuses") or ()), {}))
    finished_at = terminated.get("finishedAt")
    return WorkerPod(
        name=pod["metadata"]["name"],
        node=pod["spec"].get("nodeName"),
        exit_code=terminated.get("exitCode"),
        reason=_reason(status, terminated),
        message=terminated.get("message") or status.get("message"),
        finished_at=datetime.fromisoformat(finished_at) if finished_at else None,
    )


def _reason(status: Any, terminated: Any) -> str | None:
    """The most telling reason: the kubelet's own, the container's if it names one, or who disrupted the pod.

    Kubernetes sets the condition `DisruptionTarget` on pods that a drain, a taint, preemption or garbage collection
    ends (Kubernetes documentation, "Pod disruption conditions").
    """
    ended = terminated.get("reason")
    if status.get("reason") or ended not in (None, "", "Error", "Completed"):
        return str(status.get("reason") or ended)
    conditions = status.get("conditions") or ()
    disrupted = (one for one in conditions if one.get("type") == "DisruptionTarget" and one.get("status") == "True")
    return next((str(one["reason"]) for one in disrupted if one.get("reason")), ended)


def _terminated(container: Any) -> Any:
    return (container.get("state") or {}).get("terminated") or {}


def log_lines(lines: Iterable[bytes]) -> Iterator[LogLine]:
    """Parsed lines of the form `<RFC 3339 time> <text>`. Others are messages of the kubelet and are skipped."""
    for line in lines:
        stamp, _, text = line.decode(errors="replace").partition(" ")
        try:
            logged_at = datetime.fromisoformat(stamp)
        except ValueError:
            continue
        if logged_at.tzinfo is not None:
            yield LogLine(logged_at, text)
