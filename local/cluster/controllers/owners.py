"""Who controls a pod, and an index of pods by their controller."""

from __future__ import annotations

from collections import defaultdict

from local.cluster.model.errors import Object
from local.cluster.state.store import Change, Store


def controller_of(obj: Object, kind: str) -> Object | None:
    """The owner reference of the controller, when it is of this kind."""
    references = obj["metadata"].get("ownerReferences") or []
    return next((ref for ref in references if ref.get("controller") and ref["kind"] == kind), None)


class OwnedPods:
    """Pods by the uid of their controller, kept up to date by the store's changes."""

    def __init__(self, store: Store, kind: str) -> None:
        self._store = store
        self._kind = kind
        self._places: dict[str, set[tuple[str, str]]] = defaultdict(set)
        store.listen("pods", self._changed)

    def of(self, uid: str) -> list[Object]:
        """The pods of one controller, in the order of their names."""
        found = (self._store.get("pods", *place) for place in sorted(self._places.get(uid, ())))
        return [pod for pod in found if pod is not None]

    def count(self, uid: str) -> int:
        return len(self._places.get(uid, ()))

    def _changed(self, change: Change) -> None:
        place = (change.namespace, change.name)
        if change.previous is not None and (owner := controller_of(change.previous, self._kind)):
            self._places[owner["uid"]].discard(place)
            if not self._places[owner["uid"]]:
                del self._places[owner["uid"]]
        if change.type != "DELETED" and (owner := controller_of(change.object, self._kind)):
            self._places[owner["uid"]].add(place)
