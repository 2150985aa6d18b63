"""Decision whether a pod reaches another one of its namespace, by the network policies of that namespace.

As Kubernetes defines it (its documentation, "Network Policies"): policies add up; a pod that no policy of a direction
selects is not isolated in that direction; a connection has to be allowed at both ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

Policy = Mapping[str, Any]
Labels = Mapping[str, str]


def reaches(source: Labels, target: Labels, policies: Iterable[Policy]) -> bool:
    """Whether a pod may open a connection to a port of another pod of the namespace.

    Args:
        source: Labels of the pod that connects.
        target: Labels of the pod that listens.
        policies: All policies of the namespace.
    """
    found = list(policies)
    return _is_allowed("Ingress", target, source, found) and _is_allowed("Egress", source, target, found)


def _is_allowed(direction: str, isolated: Labels, other: Labels, policies: list[Policy]) -> bool:
    specs = [policy["spec"] for policy in policies if direction in policy["spec"]["policyTypes"]]
    selecting = [spec for spec in specs if _selects(spec["podSelector"], isolated)]
    rules = [rule for spec in selecting for rule in spec.get(direction.lower()) or ()]
    return not selecting or any(_admits(rule.get("from" if direction == "Ingress" else "to"), other) for rule in rules)


def _admits(peers: list[Any] | None, pod: Labels) -> bool:
    """Whether a rule admits a pod of the namespace. Addresses and other namespaces stand for no pod of it."""
    if not peers:
        return True
    of_namespace = (peer for peer in peers if "podSelector" in peer and "namespaceSelector" not in peer)
    return any(_selects(peer["podSelector"], pod) for peer in of_namespace)


def _selects(selector: Mapping[str, Any], labels: Labels) -> bool:
    exact = (selector.get("matchLabels") or {}).items()
    expressions = selector.get("matchExpressions") or ()
    return all(labels.get(name) == value for name, value in exact) and all(_holds(each, labels) for each in expressions)


def _holds(expression: Mapping[str, Any], labels: Labels) -> bool:
    value, operator = labels.get(expression["key"]), expression["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return (value is not None) == (operator == "Exists")
    return (value in expression["values"]) == (operator == "In")
