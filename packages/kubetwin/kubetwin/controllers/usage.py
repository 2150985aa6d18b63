"""Requests of each node's pods, kept up to date by the store's changes."""

from __future__ import annotations

from kubetwin.controllers.scheduling import Usage
from kubetwin.model.errors import Object
from kubetwin.store import Change, Store


class NodeUsage:
    """Listens to pods; `by_node` is right as soon as a change is stored."""

    def __init__(self, store: Store) -> None:
        self.by_node: dict[str, Usage] = {}
        store.listen("pods", self._pod_changed)

    def _pod_changed(self, change: Change) -> None:
        self._account(change.previous, more=False)
        self._account(None if change.type == "DELETED" else change.object, more=True)

    def _account(self, pod: Object | None, *, more: bool) -> None:
        if pod is None or not occupies(pod):
            return
        node = pod["spec"]["nodeName"]
        usage = self.by_node.get(node, Usage())
        self.by_node[node] = usage.with_pod(pod) if more else usage.without_pod(pod)


def occupies(pod: Object | None) -> bool:
    """Whether a pod holds room on a node."""
    if pod is None or not pod["spec"].get("nodeName"):
        return False
    return pod["status"].get("phase") not in ("Succeeded", "Failed")
