"""Task states `TearDown` and `TearDownAfterFailure`: nothing of the run goes on costing money. Safe to repeat."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from lambdas.gateways.eks import Nodegroups
from lambdas.handlers import backends
from lambdas.handlers.environment import ClusterEnvironment, read
from lambdas.handlers.releasing import release_run
from lambdas.handlers.task import task
from lambdas.models.run import Run


class Event(BaseModel):
    run: Run


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """Which jobs were deleted and how many nodes were given back."""
    nodegroups = Nodegroups(read(ClusterEnvironment).cluster_name)
    instance_type = event.run.spec.compute.instance_type
    released = release_run(backends.connect(), nodegroups, event.run.run_id, instance_type)
    return {"deleted_jobs": released.jobs, "nodes_released": released.nodes}
