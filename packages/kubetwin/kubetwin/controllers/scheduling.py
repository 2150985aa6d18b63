"""The node that a pod fits on, as a function of the pod, the nodes and their use; messages are kube-scheduler's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from kubetwin.model.errors import Object
from kubetwin.model.quantity import add_quantities, parse_quantity
from kubetwin.model.selectors import label_selector_of, requirements_of

Amounts = dict[str, Fraction]

_NO_MATCH = "node(s) didn't match Pod's node affinity/selector"
_NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
_NOT_HELPFUL = "Preemption is not helpful for scheduling"
_UNSCHEDULABLE_TAINT = "node.kubernetes.io/unschedulable"


HostPort = tuple[str, str, int]
"""Protocol, address ("" for all) and number."""


@dataclass(frozen=True)
class Usage:
    """Resources that a node's pods hold: the sum of their requests, and ports of the node."""

    amounts: Amounts = field(default_factory=dict)
    pods: int = 0
    ports: tuple[HostPort, ...] = ()

    def with_pod(self, pod: Object) -> Usage:
        """The usage with one pod more."""
        amounts = add_quantities(self.amounts, pod_requests(pod))
        return Usage(amounts, self.pods + 1, (*self.ports, *host_ports(pod)))

    def without_pod(self, pod: Object) -> Usage:
        """The usage with one pod less."""
        released = {name: -amount for name, amount in pod_requests(pod).items()}
        ports = list(self.ports)
        for port in host_ports(pod):
            ports.remove(port)
        return Usage(add_quantities(self.amounts, released), self.pods - 1, tuple(ports))


def host_ports(pod: Object) -> list[HostPort]:
    """The ports of its node that a pod takes."""
    containers = [*pod["spec"].get("containers", ()), *pod["spec"].get("initContainers", ())]
    return [
        (port.get("protocol", "TCP"), port.get("hostIP", "").replace("0.0.0.0", ""), port["hostPort"])  # noqa: S104
        for container in containers
        for port in container.get("ports") or []
        if port.get("hostPort")
    ]


def _share(one: HostPort, other: HostPort) -> bool:
    same = (one[0], one[2]) == (other[0], other[2])
    return same and (one[1] == other[1] or "" in (one[1], other[1]))


@dataclass(frozen=True)
class Refusal:
    """Reasons why a pod does not fit one node, and whether evicting other pods could change that."""

    reasons: tuple[str, ...]
    preemptible: bool = False


@dataclass(frozen=True)
class Placement:
    """The node for a pod, or the reason why it is missing."""

    node: str = ""
    message: str = ""


def pod_requests(pod: Object) -> Amounts:
    """Requests of a pod: the sum of its containers and sidecars, or its largest init container if that is more.

    An init container runs beside the sidecars before it (component-helpers: PodRequests).
    """
    totals = add_quantities(*(_requests(c) for c in pod["spec"].get("containers") or []))
    beside: Amounts = {}
    largest: Amounts = {}
    for container in pod["spec"].get("initContainers") or []:
        needed = add_quantities(_requests(container), beside)
        if container.get("restartPolicy") == "Always":
            beside = needed
        largest = {name: max(amount, largest.get(name, Fraction(0))) for name, amount in {**largest, **needed}.items()}
    totals = add_quantities(totals, beside)
    totals = {
        name: max(totals.get(name, Fraction(0)), largest.get(name, Fraction(0))) for name in {**totals, **largest}
    }
    return add_quantities(totals, _amounts(pod["spec"].get("overhead")))


def _requests(container: Object) -> Amounts:
    return _amounts((container.get("resources") or {}).get("requests"))


def _amounts(quantities: Mapping[str, str] | None) -> Amounts:
    return {name: parse_quantity(amount) for name, amount in (quantities or {}).items()}


def place(pod: Object, nodes: Sequence[Object], usage: Mapping[str, Usage]) -> Placement:
    """Choose the least used node that fits.

    Args:
        pod: A pod without a node.
        nodes: All nodes, in the order of their names.
        usage: Resources in use on each, by name.
    """
    if not nodes:
        return Placement(message="no nodes available to schedule pods")
    requests = pod_requests(pod)
    refusals: list[Refusal] = []
    fitting: list[tuple[float, str]] = []
    for node in nodes:
        used = usage.get(node["metadata"]["name"], Usage())
        refusal = _refusal(pod, requests, node, used)
        if refusal is None:
            fitting.append((_load(node, used), node["metadata"]["name"]))
            if fitting[-1][0] == 0:
                break  # none is less used, and none with as little use comes before it
        else:
            refusals.append(refusal)
    if fitting:
        return Placement(node=min(fitting)[1])
    return Placement(message=_explain(refusals, len(nodes)))


def hopeless(fault: str, total: int) -> Placement:
    """A pod that fits no node, for a reason of its own (a plugin's PreFilter)."""
    after = f"no new claims to deallocate, preemption: 0/{total} nodes are available: {total} {_NOT_HELPFUL}."
    return Placement(message=f"0/{total} nodes are available: {fault}. {after}")


def _explain(refusals: Sequence[Refusal], total: int) -> str:
    reasons = Counter(reason for refusal in refusals for reason in refusal.reasons)
    listed = ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
    helpless = sum(not refusal.preemptible for refusal in refusals)
    victims = total - helpless
    preemption = []
    if victims:
        preemption.append(f"{victims} No preemption victims found for incoming pod")
    if helpless:
        preemption.append(f"{helpless} {_NOT_HELPFUL}")
    return (
        f"0/{total} nodes are available: {listed}. no new claims to deallocate, "
        f"preemption: 0/{total} nodes are available: {', '.join(preemption)}."
    )


def _refusal(pod: Object, requests: Amounts, node: Object, used: Usage) -> Refusal | None:
    """The first filter that fails, in the scheduler's order."""
    spec = node["spec"]
    tolerations = pod["spec"].get("tolerations") or []
    if spec.get("unschedulable") and not tolerates(tolerations, {"key": _UNSCHEDULABLE_TAINT, "effect": "NoSchedule"}):
        return Refusal(("node(s) were unschedulable",))
    for taint in spec.get("taints") or []:
        if taint["effect"] in ("NoSchedule", "NoExecute") and not tolerates(tolerations, taint):
            return Refusal((f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}",))
    if not _selects(pod["spec"], node):
        return Refusal((_NO_MATCH,))
    if any(_share(wanted, taken) for wanted in host_ports(pod) for taken in used.ports):
        return Refusal((_NO_PORTS,), preemptible=True)
    return _too_small(requests, node, used)


def tolerates(tolerations: Sequence[Object], taint: Object) -> bool:
    """Whether one of the tolerations fits a taint."""
    return any(_fits(toleration, taint) for toleration in tolerations)


def _fits(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect") and toleration["effect"] != taint["effect"]:
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return True
    return bool(toleration.get("value", "") == taint.get("value", ""))


def _selects(spec: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    if not label_selector_of({"matchLabels": spec.get("nodeSelector") or {}}).matches(labels):
        return False
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if not needed:
        return True
    return any(_term_matches(term, node) for term in needed.get("nodeSelectorTerms") or [])


def _term_matches(term: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    names = {"metadata.name": node["metadata"]["name"]}
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    wanted = ((expressions, labels), (fields, names))
    return all(requirement.matches(found) for listed, found in wanted for requirement in requirements_of(listed))


def allocatable(node: Object) -> Amounts:
    status = node.get("status") or {}
    return _amounts(status.get("allocatable") or status.get("capacity"))


def _too_small(requests: Amounts, node: Object, used: Usage) -> Refusal | None:
    room = allocatable(node)
    reasons, too_large = [], False
    if used.pods + 1 > room.get("pods", Fraction(110)):
        reasons.append("Too many pods")
    for name, amount in sorted(requests.items()):
        if amount and amount + used.amounts.get(name, Fraction(0)) > room.get(name, Fraction(0)):
            reasons.append(f"Insufficient {name}")
            too_large = too_large or amount > room.get(name, Fraction(0))
    return Refusal(tuple(reasons), preemptible=not too_large) if reasons else None


def _load(node: Object, used: Usage) -> float:
    """The largest fraction in use of any resource, pods included."""
    room = allocatable(node)
    counted = {**used.amounts, "pods": Fraction(used.pods)}
    return max((float(amount / room[name]) for name, amount in counted.items() if room.get(name)), default=0.0)
