"""Surveys the fleet every few minutes: publishes node counts and cost, deletes what ended runs have left and releases
their nodes, and releases nodes that no run has claimed for too long.

`trainflow sweep` invokes it for the deletions only, or for a list of the objects that would be deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, Literal

from pydantic import BaseModel

from lambdas.backends.kubernetes.node_groups import release_nodes, remove_surplus
from lambdas.gateways import metrics
from lambdas.gateways.eks import Nodegroups
from lambdas.gateways.kubernetes import KubernetesCluster
from lambdas.gateways.runs import RunTable
from lambdas.handlers import backends, sweeping
from lambdas.handlers.environment import read
from lambdas.handlers.notifications import notify_once
from lambdas.handlers.task import logger, task
from lambdas.logic import metric_data
from lambdas.logic.fleet import BY_NODEGROUP, Fleet, IdleNodes, released_before, survey, unknown_price_text
from lambdas.logic.messages import idle_nodes_released
from trainflow.deployment.environment import (
    CapacityEnvironment,
    ClusterEnvironment,
    DeploymentEnvironment,
    ReapingEnvironment,
    RegionEnvironment,
    RunTableEnvironment,
)
from trainflow.nodes.instances import nodegroup_name
from trainflow.nodes.training_nodes import Nodegroup

FLEET = "fleet"
"""Source of messages that are about nodes and no run."""


class Event(BaseModel):
    """The schedule's event, which is empty, or a request of `trainflow sweep`."""

    sweep: Literal["list", "delete"] | None = None


@task(Event)
def lambda_handler(event: Event) -> dict[str, Any]:
    """The counts of nodes and pods, the cost, and what was deleted and released; for a sweep its `SweepReport`."""
    table, now = RunTable(read(RunTableEnvironment).run_table), datetime.now(UTC)
    if event.sweep is not None:
        found = sweeping.find(table, now=now)
        report = sweeping.delete(found) if event.sweep == "delete" else sweeping.listed(found)
        return report.model_dump(mode="json")
    return _survey(table, now=now)


def _survey(table: RunTable, *, now: datetime) -> dict[str, Any]:
    cluster = read(ClusterEnvironment).cluster_name
    nodegroups, backend = Nodegroups(cluster), backends.connect_cluster()
    last = table.last_survey()
    makes_nodes = read(CapacityEnvironment).cluster_makes_nodes
    # Before the claims: a run claims nodes before it asks for them.
    groups = _in_use(backend) if makes_nodes else _groups(nodegroups)
    found = sweeping.find(table, now=now)
    claims = [claim for claim in backend.claims() if claim.run_id not in found.left]
    region = read(RegionEnvironment).aws_region
    fleet = survey(groups, claims, last=last, now=now, idle_time=read(ReapingEnvironment).idle_time, region=region)
    for instance_type in fleet.unpriced:
        logger.warning(unknown_price_text(instance_type, region=region))
    for idle, num_nodes in () if makes_nodes else released_before(last, groups):
        _tell(table, idle, num_nodes, now=last.surveyed_at if last else now)
    if not table.remember(fleet.memory, previous=last):
        return {"superseded": True}  # the schedule called twice; the other call publishes the cost
    pods = backend.pods_by_phase()
    metrics.publish(
        metric_data.of_fleet(cluster, fleet, pods, now=now), deployment=read(DeploymentEnvironment).deployment
    )
    swept = sweeping.delete(found)  # before nodes are released: a claim keeps them
    released = Counter(swept.nodes_released)
    if not makes_nodes:
        released.update(_released(table, backend, nodegroups, fleet, groups, now=now))
    return {
        "nodes_up": fleet.nodes_up,
        "nodes_without_run": fleet.nodes_without_run,
        "usd": None if fleet.usd is None else round(fleet.usd, 4),
        "pods": dict(pods),
        "leftovers": {run.run_id: run.state.value for run in swept.runs},
        "nodes_released": dict(released),
        "trouble": list(swept.trouble),
    }


def _released(
    table: RunTable,
    backend: KubernetesCluster,
    nodegroups: Nodegroups,
    fleet: Fleet,
    groups: Sequence[Nodegroup],
    *,
    now: datetime,
) -> Counter[str]:
    """Release idle nodes; returns their number by type."""
    released = Counter[str]()
    released.update({idle.instance_type: _release(table, backend, nodegroups, idle, now=now) for idle in fleet.idle})
    others = {BY_NODEGROUP[group.name] for group in groups} - {idle.instance_type for idle in fleet.idle}
    for instance_type in backend.withdrawn_types() & others:  # by a survey that crashed
        released[instance_type] += remove_surplus(backend, nodegroups, instance_type, withdraw=False)
    return released


def _in_use(backend: KubernetesCluster) -> list[Nodegroup]:
    """Nodes that hold pods of runs on a cluster that makes nodes by itself, by their types."""
    used = backend.nodes_in_use()
    numbers = {name: sum(node.name in used for node in backend.nodes(name)) for name in _types(backend)}
    return [
        Nodegroup(name=nodegroup_name(name), desired=number, minimum=number, maximum=number)
        for name, number in numbers.items()
    ]


def _types(backend: KubernetesCluster) -> set[str]:
    return {claim.instance_type for claim in backend.claims()} & set(BY_NODEGROUP.values())


def _groups(nodegroups: Nodegroups) -> list[Nodegroup]:
    return [nodegroups.size(name) for name in nodegroups.names() if name in BY_NODEGROUP]


def _release(
    table: RunTable, backend: KubernetesCluster, nodegroups: Nodegroups, idle: IdleNodes, *, now: datetime
) -> int:
    released = release_nodes(backend, nodegroups, idle.instance_type) or remove_surplus(
        backend, nodegroups, idle.instance_type, withdraw=True
    )
    if released:
        _tell(table, idle, released, now=now)
    return released


def _tell(table: RunTable, idle: IdleNodes, num_nodes: int, *, now: datetime) -> None:
    """Say that idle nodes were released, once: the next survey says it where this one crashes."""
    subject, message = idle_nodes_released(idle, num_nodes, region=read(RegionEnvironment).aws_region, now=now)
    about = f"released {idle.instance_type}, idle since {idle.since.isoformat()}"
    notify_once(table, FLEET, about, subject=subject, message=message)
