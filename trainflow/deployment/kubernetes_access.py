"""Permissions of the functions in the cluster: exactly the verbs that their calls use, one group per purpose.

An EKS access entry puts a function's role into a group; a Role or ClusterRole of the same name gives the group its
verbs. The cluster stack applies these objects, and so does the twin.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any

from trainflow.deployment.backends import KUBERNETES_KINDS
from trainflow.deployment.kubernetes_names import MANAGED_BY, PLACEHOLDER_PRIORITY
from trainflow.deployment.network_policies import GROUP, PLURAL

RBAC = "rbac.authorization.k8s.io"


class Access(StrEnum):
    """Kubernetes groups by what their members do."""

    EXAMINE = "trainflow:examine"
    """Reads what a run will need, and launches the small pod that checks it from inside of the cluster."""
    SUBMIT = "trainflow:submit"
    """Launches jobs and reads how they end."""
    WATCH = "trainflow:watch"
    """Reads jobs, pods and logs."""
    SCALE = "trainflow:scale"
    """Reads nodes, and claims them for a run."""
    CLEAN_UP = "trainflow:clean-up"
    """Deletes a run's jobs, services, network policies and claim, once it has read the last lines of its logs."""
    SURVEY = "trainflow:survey"
    """Lists what runs hold; deletes what ended runs have left, and withdraws their grants of nodes."""


Rule = Mapping[str, list[str]]


def _rule(group: str, resource: str, *verbs: str) -> Rule:
    return {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}


def _jobs(*verbs: str, pods: tuple[str, ...]) -> tuple[Rule, ...]:
    """Rules for every kind of job; pods are one of them, and of all the others."""
    rules = (
        _rule(backend.group, backend.plural, *verbs, *(pods if backend.plural == "pods" else ()))
        for backend in KUBERNETES_KINDS.values()
    )
    return tuple(rules)


def _companions(*verbs: str) -> tuple[Rule, ...]:
    """Rules for the objects that jobs refer to."""
    found = ((kind.group, kind.companion) for kind in KUBERNETES_KINDS.values())
    return tuple(_rule(group, companion.plural, *verbs) for group, companion in found if companion)


IN_NAMESPACE: Mapping[Access, tuple[Rule, ...]] = {
    Access.EXAMINE: (
        *(_rule(kind.group, kind.plural, "get") for kind in KUBERNETES_KINDS.values() if kind.software),
        _rule("batch", "jobs", "create", "get"),
        _rule("", "pods", "create", "get", "list"),
        _rule("", "resourcequotas", "list"),
        _rule("", "events", "list"),
        _rule("", "services", "create", "get"),
        _rule("", "pods/log", "get"),
        _rule("", "serviceaccounts", "get"),
        _rule("", "persistentvolumeclaims", "get"),
    ),
    Access.SUBMIT: (
        *_jobs("create", "get", pods=("list",)),
        *_companions("create", "get"),
        _rule("", "services", "create", "get"),
        _rule(GROUP, PLURAL, "create", "get"),
        _rule("", "pods/log", "get"),
    ),
    Access.WATCH: (*_jobs("get", pods=("list",)), _rule("", "events", "list"), _rule("", "pods/log", "get")),
    Access.SCALE: (_rule("", "pods", "list"), _rule("", "configmaps", "create", "get", "list", "update")),
    Access.CLEAN_UP: (
        *_jobs("list", "delete", pods=("get", "deletecollection")),
        *_companions("list", "delete"),
        _rule("", "pods/log", "get"),
        _rule("", "services", "list", "delete"),
        _rule(GROUP, PLURAL, "list", "delete"),
        _rule("", "configmaps", "list", "delete"),
    ),
    Access.SURVEY: (
        *_jobs("list", "delete", pods=()),
        *_companions("list", "delete"),
        _rule("", "services", "list", "delete"),
        _rule(GROUP, PLURAL, "list", "delete"),
        _rule("", "configmaps", "get", "list", "update", "delete"),
    ),
}
"""Rules that hold in the runs' namespace only."""

IN_CLUSTER: Mapping[Access, tuple[Rule, ...]] = {
    Access.EXAMINE: (
        _rule("", "nodes", "list"),
        _rule("", "persistentvolumes", "get"),
        _rule("scheduling.volcano.sh", "queues", "get"),
        _rule("scheduling.k8s.io", "priorityclasses", "get"),
        _rule("apps", "daemonsets", "list"),
    ),
    Access.SCALE: (_rule("", "nodes", "list"),),
    Access.SUBMIT: (_rule("", "nodes", "list"),),
    Access.WATCH: (_rule("", "nodes", "list"),),
    Access.SURVEY: (_rule("", "nodes", "list", "patch"),),
}
"""Rules for the whole cluster: nodes are not namespaced, and daemon sets may be in any namespace."""


HOLDS_NODES: Mapping[Access, tuple[Rule, ...]] = {
    Access.SCALE: (
        _rule("", "pods", "create", "delete"),
        _rule("", "events", "list"),
    ),
    Access.SUBMIT: (_rule("", "pods", "deletecollection"),),
}
"""Additional rules on a cluster that makes nodes by itself: placeholders are created, explained and replaced by the
gang's own pods."""

PLACEHOLDER_VALUE = -1
"""Priority of placeholders: below that of pods without a class, which is 0. The Cluster Autoscaler starts nodes for
pods down to -10 (default of its flag `expendable-pods-priority-cutoff`)."""

REPLACES_NODES = _rule("", "nodes", "patch")
"""Additional rule of `Access.SCALE` in a deployment that replaces bad nodes: it cordons them."""


# Decision 11: on an existing cluster these are all the rights that the functions get.
def access_manifests(
    namespace: str, *, replaces_nodes: bool = False, holds_nodes: bool = False
) -> list[dict[str, Any]]:
    """Roles and bindings for every group.

    Args:
        namespace: Namespace of the runs.
        replaces_nodes: Whether the deployment replaces nodes where jobs failed.
        holds_nodes: Whether placeholders hold nodes, because the cluster makes these by itself.
    """
    manifests = [placeholder_priority()] if holds_nodes else []
    for access, rules in IN_NAMESPACE.items():
        if holds_nodes:
            rules = (*rules, *HOLDS_NODES.get(access, ()))
        manifests += _granted("Role", access, rules, namespace=namespace)
    for access, rules in IN_CLUSTER.items():
        if replaces_nodes and access is Access.SCALE:
            rules = (*rules, REPLACES_NODES)
        manifests += _granted("ClusterRole", access, rules, namespace=None)
    return manifests


def placeholder_priority() -> dict[str, Any]:
    """The PriorityClass of placeholders. They displace nothing, and give way to every pod without a class."""
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": PLACEHOLDER_PRIORITY, "labels": dict(MANAGED_BY)},
        "value": PLACEHOLDER_VALUE,
        "preemptionPolicy": "Never",
        "globalDefault": False,
        "description": "Trainflow: pods that hold nodes until the whole gang has its own",
    }


def _granted(kind: str, access: Access, rules: tuple[Rule, ...], *, namespace: str | None) -> list[dict[str, Any]]:
    name = access.value.replace(":", "-")
    metadata: dict[str, Any] = {"name": name, "labels": dict(MANAGED_BY)}
    if namespace is not None:
        metadata["namespace"] = namespace
    return [
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": kind,
            "metadata": metadata,
            "rules": [{key: list(values) for key, values in rule.items()} for rule in rules],
        },
        {
            "apiVersion": f"{RBAC}/v1",
            "kind": f"{kind}Binding",
            "metadata": metadata,
            "roleRef": {"apiGroup": RBAC, "kind": kind, "name": name},
            "subjects": [{"apiGroup": RBAC, "kind": "Group", "name": access.value}],
        },
    ]
