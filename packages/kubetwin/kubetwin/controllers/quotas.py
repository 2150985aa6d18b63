"""ResourceQuotas: objects beyond them are refused, and their status shows the use."""

from __future__ import annotations

from fractions import Fraction

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.scheduling import pod_requests
from kubetwin.controllers.work import WorkQueue
from kubetwin.model.errors import Object, forbidden
from kubetwin.model.quantity import add_quantities, format_quantity, parse_quantity
from kubetwin.resources.resource import Resource
from kubetwin.state.cluster import Cluster
from kubetwin.store import Change, Store

QUOTAS = "resourcequotas"
_PLAIN = ("cpu", "memory")


def _charge(key: str, obj: Object) -> dict[str, Fraction]:
    """Amount that one object counts against each name that a quota may limit."""
    counted = {key if "." not in key else f"count/{key}": Fraction(1), f"count/{key}": Fraction(1)}
    if key != "pods":
        return counted
    if obj["status"].get("phase") in ("Succeeded", "Failed"):
        return {}
    requests = pod_requests(obj)
    asked = {f"requests.{name}": amount for name, amount in requests.items()}
    return {**counted, **asked, **{name: requests[name] for name in _PLAIN if name in requests}, **_limits(obj)}


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
            hard = {n: parse_quantity(a) for n, a in (quota["spec"].get("hard") or {}).items() if charge.get(n)}
            now = used(self.cluster.store, quota) if hard else {}
            over = sorted(n for n, limit in hard.items() if now[n] + charge[n] > limit)
            if over:
                requested, taken, limited = (
                    ",".join(f"{name}={format_quantity(amounts[name])}" for name in over)
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
            amounts = {name: format_quantity(amount) for name, amount in used(self.cluster.store, quota).items()}
            status = {"hard": hard, "used": amounts}

            def write(stored: Object, status: Object = status) -> None:
                stored["status"] = status

            self.cluster.modify(self.quotas, namespace, quota["metadata"]["name"], write)


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    QuotaController(cluster)
