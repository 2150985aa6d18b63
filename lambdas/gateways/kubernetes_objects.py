"""Conversion of the API's objects and logs to plain data types."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from trainflow.deployment.kubernetes_names import CLAIM_LABEL, RUN_LABEL
from trainflow.nodes.training_nodes import Claim
from trainflow.observed.containers import (
    disruption,
    is_injected,
    waiting_container,
)
from trainflow.observed.containers import phase as phase_of
from trainflow.observed.node import Node
from trainflow.observed.pod import Pod, read_pod
from trainflow.protocol.launcher_report import FIRST_SIGNAL_EXIT_CODE
from trainflow.workflow.log_line import LogLine

DISRUPTIONS = ("Preempted", "TaintManagerEviction")
"""Reasons of events about a pod that the cluster ends: the scheduler's for preemption, and that of the controller that
evicts pods from nodes with a taint. The eviction API makes no event."""


def pending_reason(pod: Any) -> str | None:
    """The reason why a pod is pending, as its kubelet or the scheduler reports it; None if neither does."""
    container, waiting = waiting_container(pod)
    if waiting.get("message"):
        reason = f"{waiting.get('reason')}: {waiting['message']}"
        return f"Container '{container}', which the cluster adds: {reason}" if is_injected(pod, container) else reason
    for condition in pod.get("status", {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] != "True":
            return str(condition.get("message"))
    return None


def last_warning(events: Iterable[Any], job: str) -> str | None:
    """The newest warning about a job or one of its objects, whose names begin with the job's; None without one."""
    about = [event for event in events if str((event.get("involvedObject") or {}).get("name", "")).startswith(job)]
    newest = max(about, key=lambda event: str(event.get("lastTimestamp") or event.get("eventTime") or ""), default=None)
    return f"{newest.get('reason')}: {newest.get('message')}" if newest is not None else None


def lost_pod(events: Sequence[Any]) -> Pod | None:
    """A deleted pod, from its events: its node, and the reason why the cluster ended it.

    Args:
        events: Events of one pod.

    Returns:
        The pod; None if the events do not show that the cluster ended it.
    """
    ended = next((event for event in events if event.get("reason") in DISRUPTIONS), None)
    if ended is None:
        return None
    hosts = (str((event.get("source") or {}).get("host") or "") for event in events)  # of its kubelet
    return Pod(
        name=str(ended["involvedObject"]["name"]), node=next(filter(None, hosts), None), end_reason=str(ended["reason"])
    )


def parse_claim(config_map: Any) -> Claim:
    """The claim that a ConfigMap stores."""
    labels = config_map["metadata"]["labels"]
    return Claim(
        name=config_map["metadata"]["name"],
        run_id=labels[RUN_LABEL],
        instance_type=labels[CLAIM_LABEL],
        num_nodes=int(config_map["data"]["num_nodes"]),
        created_at=config_map["metadata"].get("creationTimestamp") or "",
        avoided_nodes=frozenset(config_map["data"].get("avoided_nodes", "").split()),
    )


def is_disrupted(pod: Any) -> bool:
    """Whether the cluster ends the pod, or has ended it: a drain, a taint, preemption, or the loss of its node."""
    return disruption(pod) is not None


def troubled_pods(pods: Iterable[Any], nodes: Mapping[str, Node]) -> list[Pod]:
    """Pods that have failed, are being ended by the cluster, or are on a node that is lost; the first to fail first.

    A pod on a lost node is not reported as failed: its kubelet, which would report it, does not answer. Pods that the
    job's controller deletes because another one failed are not among them.

    Args:
        pods: Pods of one job.
        nodes: All nodes of the cluster, by name.
    """
    found = [
        _with_trouble(read_pod(pod), trouble) for pod in pods if _is_troubled(pod, trouble := _node_trouble(pod, nodes))
    ]
    return sorted(found, key=_order_of_end)


def peer_pods(pods: Iterable[Any], nodes: Mapping[str, Node]) -> list[Pod]:
    """The other pods: those whose program ended with exit code 0, the first to end first, then those that run.

    A program that its node asked to end may do so with exit code 0. So the trouble of the node is the reason then.

    Args:
        pods: Pods of one job.
        nodes: All nodes of the cluster, by name.
    """
    found = []
    for pod in pods:
        trouble = _node_trouble(pod, nodes)
        if not _is_troubled(pod, trouble):
            peer = read_pod(pod)
            found.append(replace(peer, end_reason=trouble) if trouble else peer)
    return sorted(found, key=_order_of_end)


def _order_of_end(pod: Pod) -> tuple[bool, datetime | None, int, str]:
    return pod.finished_at is None, pod.finished_at, pod.index, pod.name


def _is_troubled(pod: Any, trouble: str | None) -> bool:
    phase = phase_of(pod)
    return phase == "Failed" or is_disrupted(pod) or (phase != "Succeeded" and trouble is not None)


def _node_trouble(pod: Any, nodes: Mapping[str, Node]) -> str | None:
    name = pod["spec"].get("nodeName")
    if name is None:
        return None
    return nodes[name].trouble if name in nodes else "NodeLost"


def _with_trouble(pod: Pod, trouble: str | None) -> Pod:
    """The pod with its node's trouble as the reason, unless it has a better one: its own, or an end by itself."""
    by_itself = pod.exit_code is not None and pod.exit_code <= FIRST_SIGNAL_EXIT_CODE
    has_reason = by_itself or pod.end_reason not in (None, "", "Error")
    return pod if trouble is None or has_reason else replace(pod, end_reason=trouble)


def grants_name(instance_type: str) -> str:
    """Name of the ConfigMap with the grants of an instance type."""
    return f"granted-{instance_type}"


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
