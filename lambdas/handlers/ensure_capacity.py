"""Task state `EnsureCapacity`: are the gang's nodes there? If not, ask for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways.eks import Nodegroups
from lambdas.handlers import backends
from lambdas.handlers.environment import ClusterEnvironment, read
from lambdas.handlers.task import task
from lambdas.logic.capacity import Capacity, count_ready, require_fit, require_time_left
from lambdas.logic.pauses import pause_seconds
from trainflow.models.instances import nodegroup_name
from trainflow.models.run import Run


class Event(BaseModel):
    run: Run
    waiting_since: datetime
    waited_seconds: int = 0
    """In the looks before, of all the run's attempts."""


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Whether every node of the gang is ready, how many are, and how long to wait before the next look."""
    run_id, compute = event.run.run_id, event.run.spec.compute
    if compute.backend == "slurm":
        # It starts nodes for the jobs in its queue; they wait there, within limits.gang_timeout_minutes.
        return _answer(Capacity(nodes_ready=compute.num_nodes, nodes_wanted=compute.num_nodes), wait_seconds=0)
    cluster = backends.connect_cluster()
    cluster.claim_nodes(run_id, compute.instance_type, compute.num_nodes)
    used_by_others = cluster.nodes_used_by_others(run_id)
    ready = count_ready(cluster.nodes(compute.instance_type), compute, used_by_others=used_by_others)
    capacity = Capacity(nodes_ready=ready, nodes_wanted=compute.num_nodes)
    if not capacity.ready:
        nodegroups = Nodegroups(read(ClusterEnvironment).cluster_name)
        nodegroup = nodegroups.size(nodegroup_name(compute.instance_type))
        require_fit(event.run.spec, nodegroup)  # before it grows: nodes of a gang that cannot be cost as much
        nodegroups.grow_to(nodegroup.name, cluster.claimed_nodes(compute.instance_type))
    limits, now = event.run.spec.limits, datetime.now(UTC)
    require_time_left(event.run.spec, capacity, waiting_since=event.waiting_since, now=now)
    left = limits.capacity_timeout_minutes * 60 - (now - event.waiting_since).total_seconds()
    pause = pause_seconds(event.waited_seconds, shortest=limits.poll_seconds, longest=left)
    return _answer(capacity, wait_seconds=0 if capacity.ready else pause)


def _answer(capacity: Capacity, *, wait_seconds: int) -> dict[str, Any]:
    facts = {"ready": capacity.ready, "nodes_ready": capacity.nodes_ready, "nodes_wanted": capacity.nodes_wanted}
    return {**facts, "wait_seconds": wait_seconds}
