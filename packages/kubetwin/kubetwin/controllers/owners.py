"""Controllers of objects, and indexes of objects by their controller."""

from __future__ import annotations

from collections import defaultdict

from kubetwin.model.errors import Object
from kubetwin.resources.resource import Resource
from kubetwin.store import Change, Store


def owner_reference(owner: Object) -> Object:
    """The owner reference of an object that `owner` controls."""
    return {
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def controller_of(obj: Object, resource: Resource) -> Object | None:
    """The owner reference of the controller, when it is of this kind (there are Jobs in more than one group)."""
    references = obj["metadata"].get("ownerReferences") or []
    return next((ref for ref in references if ref.get("controller") and _is(ref, resource)), None)


def _is(reference: Object, resource: Resource) -> bool:
    group, _, _ = reference["apiVersion"].rpartition("/")
    return bool(reference["kind"] == resource.kind and group == resource.group)


class Owned:
    """Objects of one resource by the uid of their controller, kept up to date by the store's changes."""

    def __init__(self, store: Store, key: str, owner: Resource) -> None:
        """
        Args:
            store: Where the objects are.
            key: The resource of the owned objects.
            owner: The resource of their controllers.
        """
        self._store, self._key, self._owner = store, key, owner
        self._places: dict[str, set[tuple[str, str]]] = defaultdict(set)
        store.listen(key, self._changed)

    def of(self, uid: str) -> list[Object]:
        """The objects of one controller, in the order of their names."""
        found = (self._store.get(self._key, *place) for place in sorted(self._places.get(uid, ())))
        return [obj for obj in found if obj is not None]

    def count(self, uid: str) -> int:
        return len(self._places.get(uid, ()))

    def _changed(self, change: Change) -> None:
        place = (change.namespace, change.name)
        if change.previous is not None and (owner := controller_of(change.previous, self._owner)):
            self._places[owner["uid"]].discard(place)
            if not self._places[owner["uid"]]:
                del self._places[owner["uid"]]
        if change.type != "DELETED" and (owner := controller_of(change.object, self._owner)):
            self._places[owner["uid"]].add(place)
