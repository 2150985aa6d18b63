"""The pods that a daemon set of the cluster puts on its nodes: their requests, and the nodes that have one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from trainflow.nodes.instances import INSTANCE_TYPE_LABEL, InstanceType

NO_SCHEDULE = "NoSchedule"

ARCHITECTURES = {"x86_64": "amd64"}
"""Architecture in Kubernetes' labels, by that of `uname -m`."""


@dataclass(frozen=True, kw_only=True)
class DaemonPods:
    """One pod of a daemon set."""

    name: str
    cpu: Decimal
    """Request, in vCPUs."""
    memory: Decimal
    """Request, in bytes."""
    spec: Mapping[str, Any]
    """The pod's spec, which says where it runs."""

    def certainly_on(self, instance: InstanceType) -> bool:
        """Whether every training node of this type has one of its pods.

        A rule about a label that a node may or may not have counts as not certain.
        """
        labels = {
            "kubernetes.io/os": "linux",
            "kubernetes.io/arch": ARCHITECTURES.get(instance.architecture, instance.architecture),
            INSTANCE_TYPE_LABEL: instance.name,
        }
        affinity = (self.spec.get("affinity") or {}).get("nodeAffinity") or {}
        terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms")
        return (
            all(labels.get(key) == value for key, value in (self.spec.get("nodeSelector") or {}).items())
            and (not terms or any(_holds(term, labels) for term in terms))
            and all(self._tolerates(key, value) for key, value in instance.taints.items())
        )

    def _tolerates(self, key: str, value: str) -> bool:
        return any(
            each.get("key") in (None, "", key)
            and each.get("effect") in (None, "", NO_SCHEDULE)
            and (each.get("operator") == "Exists" or each.get("value") == value)
            for each in self.spec.get("tolerations") or ()
        )


def _holds(term: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a term holds for a node with these labels and, of the well-known ones, no others."""
    expressions = term.get("matchExpressions") or ()
    return not term.get("matchFields") and bool(expressions) and all(_fits(each, labels) for each in expressions)


def _fits(expression: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Labels that exclude nodes, such as those of Fargate, are not on nodes of a managed node group."""
    value, operator = labels.get(expression["key"]), expression["operator"]
    if operator in ("NotIn", "DoesNotExist"):
        return value is None or (operator == "NotIn" and value not in expression["values"])
    return value is not None and (operator == "Exists" or (operator == "In" and value in expression["values"]))
