"""Surveys the fleet every few minutes: publishes node counts and cost, drops the claims of runs that have ended, and
releases nodes that no run has claimed for too long."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from pydantic import BaseModel

from lambdas.backends.kubernetes.node_groups import release_nodes
from lambdas.gateways import executions, metrics
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.gateways.runs import RunTable
from lambdas.handlers import backends
from lambdas.handlers.environment import read
from lambdas.handlers.notifications import notify
from lambdas.handlers.task import logger, task
from lambdas.logic import metric_data
from lambdas.logic.fleet import BY_NODEGROUP, IdleNodes, no_price, obsolete, survey
from lambdas.logic.messages import idle_nodes_released
from trainflow.models.environment import (
    ClusterEnvironment,
    DeploymentEnvironment,
    ReapingEnvironment,
    RegionEnvironment,
    RunTableEnvironment,
)
from trainflow.models.run_record import RunStatus
from trainflow.models.run_table import RunRow
from trainflow.models.training_nodes import Claim, Nodegroup


class Event(BaseModel):
    """The schedule's event, none of whose fields is needed."""


@task(Event)
def lambda_handler(_event: Event) -> dict[str, Any]:
    """The counts of nodes and pods, the cost, and what was dropped and released."""
    cluster = read(ClusterEnvironment).cluster_name
    nodegroups, backend = Nodegroups(cluster), backends.connect_cluster()
    table, now = RunTable(read(RunTableEnvironment).run_table), datetime.now(UTC)
    last = table.last_survey()
    groups = _groups(nodegroups)  # before the claims: a run claims nodes before it asks for them
    claims, dropped = _current_claims(backend, table)
    region = read(RegionEnvironment).aws_region
    fleet = survey(groups, claims, last=last, now=now, idle_time=read(ReapingEnvironment).idle_time, region=region)
    for instance_type in fleet.unpriced:
        logger.warning(no_price(instance_type, region=region))
    if not table.remember(fleet.memory, previous=last):
        return {"superseded": True}  # the schedule called twice; the other call publishes the cost
    pods = backend.pods_by_phase()
    metrics.publish(
        metric_data.of_fleet(cluster, fleet, pods, now=now), deployment=read(DeploymentEnvironment).deployment
    )
    released = {idle.instance_type: _release(backend, nodegroups, idle, now=now) for idle in fleet.idle}
    return {
        "nodes_up": fleet.nodes_up,
        "nodes_without_run": fleet.nodes_without_run,
        "usd": None if fleet.usd is None else round(fleet.usd, 4),
        "pods": dict(pods),
        "claims_dropped": [claim.run_id for claim in dropped],
        "nodes_released": released,
    }


def _groups(nodegroups: Nodegroups) -> list[Nodegroup]:
    return [nodegroups.size(name) for name in nodegroups.names() if name in BY_NODEGROUP]


def _current_claims(backend: KubernetesCluster, table: RunTable) -> tuple[list[Claim], Sequence[Claim]]:
    """The claims of runs that need their nodes, and those of other runs, which were deleted."""
    claims = backend.claims()
    dropped = obsolete(claims, {claim.run_id: _row_as_of_now(table, claim.run_id) for claim in claims})
    for claim in dropped:
        backend.drop_claim(claim)
    return [claim for claim in claims if claim not in dropped], dropped


def _row_as_of_now(table: RunTable, run_id: str) -> RunRow | None:
    """A run's row; if the table has it as running, with the status that Step Functions reports.

    An execution may end without updating its row, and the clean-up after it may fail.
    """
    row = table.find(run_id)
    if row is None or row.status is not RunStatus.RUNNING:
        return row
    status = executions.status_if_known(row.execution_arn) or RunStatus.FAILED
    return row.model_copy(update={"status": status})


def _release(backend: KubernetesCluster, nodegroups: Nodegroups, idle: IdleNodes, *, now: datetime) -> int:
    released = release_nodes(backend, nodegroups, idle.instance_type)
    if released:
        subject, message = idle_nodes_released(idle, released, region=read(RegionEnvironment).aws_region, now=now)
        notify(subject=subject, message=message)
    return released
