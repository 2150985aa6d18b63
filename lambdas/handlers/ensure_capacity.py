"""Task state `EnsureCapacity`: are the gang's nodes there? If not, ask for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.gateways.eks import Nodegroups
from lambdas.handlers import backends
from lambdas.handlers.environment import ClusterEnvironment, read
from lambdas.handlers.task import task
from lambdas.logic.capacity import Capacity, count_ready, require_time_left
from lambdas.models.instances import nodegroup_name
from lambdas.models.run import Run


class Event(BaseModel):
    run: Run
    waiting_since: datetime


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Whether every node of the gang is ready, and how many are."""
    compute = event.run.spec.compute
    cluster = backends.connect()
    used_by_others = cluster.nodes_used_by_others(event.run.run_id)
    nodes = cluster.nodes(compute.instance_type)
    ready = count_ready(nodes, compute.instance, used_by_others=used_by_others)
    capacity = Capacity(nodes_ready=ready, nodes_wanted=compute.num_nodes)
    if not capacity.ready:
        busy = sum(node.name in used_by_others for node in nodes)
        nodegroups = Nodegroups(read(ClusterEnvironment).cluster_name)
        nodegroups.grow_to(nodegroup_name(compute.instance_type), busy + compute.num_nodes)
    require_time_left(event.run.spec, capacity, waiting_since=event.waiting_since, now=datetime.now(UTC))
    return {"ready": capacity.ready, "nodes_ready": ready, "nodes_wanted": capacity.nodes_wanted}
