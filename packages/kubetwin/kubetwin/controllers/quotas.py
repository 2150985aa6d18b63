"""ResourceQuotas: objects beyond them are refused, and their status shows the use."""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.scheduling import pod_requests
from kubetwin.controllers.work import WorkQueue
from kubetwin.model.errors import Object, forbidden
from kubetwin.model.quantity import add_quantities, format_binary, format_quantity, parse_quantity
from kubetwin.resources.resource import Resource
from kubetwin.state.cluster import Cluster
from kubetwin.store import Change, Store

QUOTAS = "resourcequotas"
_PLAIN = ("cpu", "memory")


def _charge(key: str, obj: Object) -> dict[str, Fraction]:
    """Amount that one object counts against each name that a quota may limit."""
    counted = {key if "." not in key else f"count/{key}": Fraction(1), f"count/{key}": Fraction(1)}
    if key == "services":
        return {**counted, **_charge_service(obj["spec"])}
    if key == "persistentvolumeclaims":
        return {**counted, "requests.storage": parse_quantity(obj["spec"]["resources"]["requests"]["storage"])}
    if key != "pods":
        return counted
    if obj["status"].get("phase") in ("Succeeded", "Failed"):
        return {}
    requests = pod_requests(obj)
    asked = {f"requests.{name}": amount for name, amount in requests.items()}
    return {**counted, **asked, **{name: requests[name] for name in _PLAIN if name in requests}, **_limits(obj)}


def _format(name: str, amount: Fraction) -> str:
    return format_binary(amount) if name.endswith(("memory", "storage")) else format_quantity(amount)


def _charge_service(spec: Object) -> dict[str, Fraction]:
    """Ports of nodes and load balancers (pkg/quota/v1/evaluator/core/services.go)."""
    ports = Fraction(sum(bool(port.get("nodePort")) for port in spec.get("ports") or []))
    balancers = Fraction(spec["type"] == "LoadBalancer")
    return {"services.nodeports": ports, "services.loadbalancers": balancers}


def unnamed_amounts(pod: Object, names: Iterable[str]) -> str:
    """Amounts that a quota limits and that containers do not name, in the server's words; "" if they name all."""
    lacking: dict[str, set[str]] = {}
    for container in [*(pod["spec"].get("containers") or []), *(pod["spec"].get("initContainers") or [])]:
        resources = container.get("resources") or {}
        for name in names:
            kind, _, amount = name.rpartition(".")
            if amount in _PLAIN and kind in ("", "requests", "limits"):
                given = resources.get(kind or "requests") or {}
                if amount not in given:
                    lacking.setdefault(name, set()).add(container["name"])
    return "; ".join(f"{name} for: {','.join(sorted(lacking[name]))}" for name in sorted(lacking))


def _limits(pod: Object) -> dict[str, Fraction]:
    limits = ((c.get("resources") or {}).get("limits") or {} for c in pod["spec"].get("containers") or [])
    totals = add_quantities(*({n: parse_quantity(a) for n, a in limit.items()} for limit in limits))
    return {f"limits.{name}": amount for name, amount in totals.items() if name in _PLAIN}


def used(store: Store, quota: Object) -> dict[str, Fraction]:
    """Use of each resource that the quota limits, over its namespace."""
    hard = quota["spec"].get("hard") or {}
    totals = {name: Fraction(0) for name in hard}
    for key in {_counted_resource(name) for name in hard}:
        for obj in store.objects(key, quota["metadata"]["namespace"]):
            totals = add_quantities(totals, {n: a for n, a in _charge(key, obj).items() if n in hard})
    return totals


def _counted_resource(name: str) -> str:
    if name == "requests.storage":
        return "persistentvolumeclaims"
    if name in ("services.nodeports", "services.loadbalancers"):
        return "services"
    if name in _PLAIN or name.startswith(("requests.", "limits.")):
        return "pods"
    return name.removeprefix("count/")


class QuotaController:
    """Admission of new objects, and the status of quotas."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.quotas = cluster.registry.by_key(QUOTAS)
        self.queue: WorkQueue[str] = WorkQueue(self._update_status)
        cluster.admission.append(self.admit)
        cluster.store.listen("", self._changed)

    def admit(self, resource: Resource, obj: Object) -> None:
        """Refuse an object that would exceed a quota of its namespace.

        Raises:
            ApiError: 403.
        """
        if not resource.namespaced:
            return
        charge = _charge(resource.key, obj)
        for quota in self.cluster.store.objects(QUOTAS, obj["metadata"]["namespace"]):
            limits = quota["spec"].get("hard") or {}
            if resource.key == "pods" and (lacking := unnamed_amounts(obj, limits)):
                detail = f"failed quota: {quota['metadata']['name']}: must specify {lacking}"
                raise forbidden(resource.group_resource, obj["metadata"]["name"], detail)
            hard = {n: parse_quantity(a) for n, a in limits.items() if charge.get(n)}
            now = used(self.cluster.store, quota) if hard else {}
            over = sorted(n for n, limit in hard.items() if now[n] + charge[n] > limit)
            if over:
                requested, taken, limited = (
                    ",".join(f"{name}={_format(name, amounts[name])}" for name in over)
                    for amounts in (charge, now, hard)
                )
                name = quota["metadata"]["name"]
                detail = f"exceeded quota: {name}, requested: {requested}, used: {taken}, limited: {limited}"
                raise forbidden(resource.group_resource, obj["metadata"]["name"], detail)

    def _changed(self, change: Change) -> None:
        if change.namespace and change.key != "events":
            self.queue.add(change.namespace)

    def _update_status(self, namespace: str) -> None:
        for quota in self.cluster.store.objects(QUOTAS, namespace):
            hard = quota["spec"].get("hard") or {}
            amounts = {name: _format(name, amount) for name, amount in used(self.cluster.store, quota).items()}
            self.cluster.set_status(self.quotas, quota, {"hard": hard, "used": amounts})


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    QuotaController(cluster)
