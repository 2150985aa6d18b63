"""Task states `TearDown` and `TearDownAfterFailure`: nothing of the run goes on costing money. Safe to repeat."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from lambdas.gateways.eks import Nodegroups
from lambdas.handlers import backends
from lambdas.handlers.environment import ClusterEnvironment, read
from lambdas.handlers.task import task
from lambdas.models.instances import nodegroup_name
from lambdas.models.run import Run


class Event(BaseModel):
    run: Run


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Which jobs were deleted and how many nodes were given back."""
    backend = backends.connect()
    jobs = backend.cancel(event.run.run_id)
    instance_type = event.run.spec.compute.instance_type
    if backend.claimed_nodes(instance_type):
        # Another run's. Scaling in picks nodes by itself: it must not pick one that trains.
        return {"deleted_jobs": jobs, "nodes_released": 0}
    nodegroups = Nodegroups(read(ClusterEnvironment).cluster_name)
    return {"deleted_jobs": jobs, "nodes_released": nodegroups.release(nodegroup_name(instance_type))}
