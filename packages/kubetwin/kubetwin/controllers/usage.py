"""Requests of each node's pods, kept up to date by the store's changes."""

from __future__ import annotations

from kubetwin.controllers.scheduling import Usage, pod_requests
from kubetwin.model.errors import Object
from kubetwin.model.quantity import add_quantities
from kubetwin.store import Change, Store


class NodeUsage:
    """Listens to pods; `by_node` is right as soon as a change is stored."""

    def __init__(self, store: Store) -> None:
        self.by_node: dict[str, Usage] = {}
        store.listen("pods", self._pod_changed)

    def _pod_changed(self, change: Change) -> None:
        self._account(change.previous, -1)
        self._account(None if change.type == "DELETED" else change.object, 1)

    def _account(self, pod: Object | None, sign: int) -> None:
        if pod is None or not occupies(pod):
            return
        usage = self.by_node.setdefault(pod["spec"]["nodeName"], Usage())
        signed = {name: amount * sign for name, amount in pod_requests(pod).items()}
        usage.amounts = add_quantities(usage.amounts, signed)
        usage.pods += sign


def occupies(pod: Object | None) -> bool:
    """Whether a pod holds room on a node."""
    if pod is None or not pod["spec"].get("nodeName"):
        return False
    return pod["status"].get("phase") not in ("Succeeded", "Failed")
