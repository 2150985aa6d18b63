"""Nodes of gangs on a cluster that makes nodes for pending pods: Karpenter, EKS Auto Mode, the Cluster Autoscaler.

Nothing is scaled here. Placeholders ask for the nodes of a whole gang and hold them; the gang's own pods take their
places (docs/decisions/0104-nodes-by-the-cluster.md).
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from lambdas.backends.kubernetes.placeholders import placeholder
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.gateways.kubernetes_objects import pending_reason
from lambdas.logic.autoscaling import NodeReport, blockage, newest_report
from lambdas.logic.capacity import Capacity
from lambdas.logic.jobs import Job
from lambdas.logic.preflight.admission import TRANSIENT
from trainflow.errors import ClusterAccessDenied
from trainflow.nodes.training_nodes import Grants
from trainflow.workflow.run import Run

LOST_AFTER = timedelta(minutes=1)
"""Longest delay of a pod's end. Later its node is lost, and the pod ends with the node's object."""


def ensure_nodes(cluster: KubernetesCluster, run: Run, job: Job, *, waiting_since: datetime, now: datetime) -> Capacity:
    """The number of the gang's nodes that its placeholders hold; creates the missing placeholders. Safe to repeat.

    Args:
        cluster: The cluster that makes the nodes.
        run: The run.
        job: A job of its gang.
        waiting_since: When the run began to wait for nodes of this type.
        now: The time.
    """
    compute = run.spec.compute
    wanted = Capacity(nodes_ready=0, nodes_wanted=compute.num_nodes)
    avoided = run.failed_nodes.avoided
    cluster.claim_nodes(run.run_id, compute.instance_type, compute.num_nodes, avoided_nodes=avoided)
    grants = cluster.grants(compute.instance_type)  # before the claims: a grant without its claim counts for nothing
    claims = cluster.claims(compute.instance_type)
    blocked = blockage(run.run_id, claims, granted=grants.by_run.keys())
    if blocked is not None:
        return replace(wanted, waits_for=blocked)
    # Pods that still end occupy the nodes: placeholders beside them would ask for as many further ones.
    if cluster.gang_pods_since(run.run_id, now - LOST_AFTER):
        return replace(wanted, pending_reason="the pods of the run's previous job have not ended yet")
    held = {pod["metadata"]["name"]: pod for pod in cluster.placeholders(run.run_id)}
    limit = run.spec.limits.capacity_timeout_minutes * 60
    refusal = None
    for number in range(compute.num_nodes):
        manifest = placeholder(job, number, wait_seconds=limit)
        existing = held.get(manifest["metadata"]["name"])
        if existing is None:
            refusal = refusal or _create(cluster, manifest)
        elif existing["status"].get("phase") in ("Failed", "Succeeded"):
            cluster.delete_placeholder(manifest["metadata"]["name"])  # the next poll creates another one
    running = [pod for pod in held.values() if _is_running(pod)]
    if len(running) >= compute.num_nodes and _granted(cluster, run, grants, claimed={each.run_id for each in claims}):
        return replace(wanted, nodes_ready=compute.num_nodes)
    report = _report(cluster, [pod for pod in held.values() if not _is_running(pod)], since=waiting_since)
    return replace(
        wanted,
        nodes_ready=min(len(running), compute.num_nodes - 1),
        pending_reason=refusal or (report.text if report else None),
        shortage=report.text if report and report.is_refusal and compute.fallback else None,
    )


def _is_running(pod: Any) -> bool:
    return pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")


def _create(cluster: KubernetesCluster, manifest: dict[str, Any]) -> str | None:
    """Create a placeholder; returns why the cluster takes none at the moment."""
    try:
        cluster.create_placeholder(manifest)
    except ClusterAccessDenied as refused:
        if TRANSIENT not in str(refused):
            raise
        return str(refused).rstrip(".")
    return None


def _report(cluster: KubernetesCluster, pending: list[Any], *, since: datetime) -> NodeReport | None:
    """The reason why one of the pods waits: an autoscaler's report, or else the scheduler's or the kubelet's."""
    for pod in sorted(pending, key=lambda pod: bool(pod["spec"].get("nodeName")))[:1]:
        if not pod["spec"].get("nodeName"):
            report = newest_report(cluster.events_of_pod(pod["metadata"]["name"]), since=since)
            if report is not None:
                return report
        reason = pending_reason(pod)
        if reason:
            return NodeReport(text=reason, is_refusal=False)
    return None


def _granted(cluster: KubernetesCluster, run: Run, grants: Grants, *, claimed: set[str]) -> bool:
    """Note that the gang is complete, so that the next run may ask for nodes; False if another note came between."""
    compute = run.spec.compute
    others = {run_id: number for run_id, number in grants.by_run.items() if run_id in claimed}
    by_run = {**others, run.run_id: compute.num_nodes}
    return cluster.store_grants(compute.instance_type, Grants(by_run=by_run, version=grants.version))
