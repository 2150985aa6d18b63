"""PodDisruptionBudgets: how many pods may be evicted now."""

from __future__ import annotations

import math

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.work import WorkQueue
from kubetwin.model.conditions import holds, set_condition
from kubetwin.model.errors import Object
from kubetwin.model.selectors import label_selector_of
from kubetwin.state.cluster import Cluster
from kubetwin.store import Change, Store

BUDGETS = "poddisruptionbudgets.policy"


def budgets_of(store: Store, pod: Object) -> list[Object]:
    """The budgets that cover a pod."""
    budgets = store.objects(BUDGETS, pod["metadata"]["namespace"])
    return [b for b in budgets if "selector" in b["spec"] and _covers(b, pod)]


def _covers(budget: Object, pod: Object) -> bool:
    return label_selector_of(budget["spec"]["selector"]).matches(pod["metadata"].get("labels"))


def budget_status(budget: Object, pods: list[Object]) -> Object:
    """Numbers of the budget's pods: healthy, required to be healthy, and allowed to be evicted."""
    spec = budget["spec"]
    expected = len(pods)
    healthy = sum(_is_healthy(pod) for pod in pods)
    if "maxUnavailable" in spec:
        wanted = expected - _scaled(spec["maxUnavailable"], expected)
    else:
        wanted = _scaled(spec.get("minAvailable", 1), expected)
    return {
        "expectedPods": expected,
        "currentHealthy": healthy,
        "desiredHealthy": max(wanted, 0),
        "disruptionsAllowed": max(0, healthy - wanted),
    }


def _scaled(value: int | str, total: int) -> int:
    if isinstance(value, int):
        return value
    return math.ceil(int(value.rstrip("%")) * total / 100)


def _is_healthy(pod: Object) -> bool:
    return holds(pod["status"], "Ready") and not pod["metadata"].get("deletionTimestamp")


class DisruptionController:
    """Keeps the status of budgets."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.budgets = cluster.registry.by_key(BUDGETS)
        self.queue: WorkQueue[str] = WorkQueue(self._update)
        for key in (BUDGETS, "pods"):
            cluster.store.listen(key, self._changed)

    def _changed(self, change: Change) -> None:
        self.queue.add(change.namespace)

    def _update(self, namespace: str) -> None:
        budgets = self.cluster.store.objects(BUDGETS, namespace)
        pods = self.cluster.store.objects("pods", namespace) if budgets else []
        for budget in budgets:
            mine = [p for p in pods if "selector" in budget["spec"] and _covers(budget, p)]
            running = [p for p in mine if p["status"].get("phase") not in ("Succeeded", "Failed")]
            status = budget_status(budget, running)

            def write(stored: Object, status: Object = status) -> None:
                allowed = status["disruptionsAllowed"] > 0
                generation = stored["metadata"]["generation"]
                stored["status"] = {**stored.get("status", {}), **status, "observedGeneration": generation}
                new = {
                    "type": "DisruptionAllowed",
                    "status": str(allowed),
                    "reason": "SufficientPods" if allowed else "InsufficientPods",
                    "message": "",
                    "observedGeneration": generation,
                }
                set_condition(stored["status"], new)

            self.cluster.modify(self.budgets, namespace, budget["metadata"]["name"], write)


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    DisruptionController(cluster)
