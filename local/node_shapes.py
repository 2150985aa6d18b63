"""Shapes of the twin's nodes: resources, labels and taints of an EKS node of each instance type."""

from __future__ import annotations

from kubetwin.node.shape import NodeShape

from trainflow.deployment.kubernetes_names import SMALL_JOB_NODES, TRAINING_NODES
from trainflow.nodes.daemon_sets import on_node
from trainflow.nodes.instances import (
    INSTANCE_TYPE_LABEL,
    INSTANCE_TYPES,
    SYSTEM_INSTANCE,
    InstanceType,
    unknown_type,
)
from trainflow.nodes.node_room import room_for_pods

SMALL_JOBS_NODEGROUP = "small-jobs"
"""Node group of the permanent nodes for small jobs."""


class UnknownInstanceType(Exception):
    """No such instance type is known; the text lists those that are."""


def instance_type_named(name: str) -> InstanceType:
    """The instance type of this name, of runs or of the system's nodes.

    Raises:
        UnknownInstanceType: If the name is unknown.
    """
    known = {**INSTANCE_TYPES, SYSTEM_INSTANCE.name: SYSTEM_INSTANCE}
    if name not in known:
        raise UnknownInstanceType(f"instance type {name!r} is not known; {unknown_type(name, known)}")
    return known[name]


def instance_shape(instance: InstanceType, *, nodegroup: str = "") -> NodeShape:
    """Shape of an instance that has joined the cluster.

    The allocatable resources are those of an EKS node, less the pods and the requests of the daemon sets, which the
    twin does not run.

    Args:
        instance: Type of the instance.
        nodegroup: Managed node group that the node belongs to: EKS labels its nodes with the name, and the deployed
            node groups have labels and taints of their own. Without one, the node has only the instance type's label.
    """
    room = room_for_pods(instance)
    capacity = {
        "cpu": str(instance.vcpus),
        "memory": f"{instance.memory_gib}Gi",
        "pods": str(instance.max_pods),
        **{resource: str(count) for resource, count in instance.devices.items()},
    }
    allocatable = {
        "cpu": f"{room.millicpu}m",
        "memory": f"{room.memory_mib}Mi",
        "pods": str(instance.max_pods - len(on_node(instance))),
    }
    return NodeShape(
        capacity=capacity,
        allocatable=capacity | allocatable,
        labels={
            INSTANCE_TYPE_LABEL: instance.name,
            **(instance.node_labels if nodegroup else {}),
            **_nodegroup_labels(nodegroup),
        },
        taints=_taints(instance, nodegroup) if nodegroup else (),
    )


def _nodegroup_labels(nodegroup: str) -> dict[str, str]:
    """Labels as EKS and the deployed node groups give them."""
    if not nodegroup:
        return {}
    ours = SMALL_JOB_NODES if nodegroup == SMALL_JOBS_NODEGROUP else TRAINING_NODES
    return {"eks.amazonaws.com/nodegroup": nodegroup, **ours}


def _taints(instance: InstanceType, nodegroup: str) -> list[dict[str, str]]:
    """Taints as the deployed node groups give them."""
    taints = SMALL_JOB_NODES if nodegroup == SMALL_JOBS_NODEGROUP else instance.taints
    return [{"key": key, "value": value, "effect": "NoSchedule"} for key, value in taints.items()]
