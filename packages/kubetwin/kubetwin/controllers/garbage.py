"""The garbage collector: deletes or releases the dependents of a deleted object."""

from __future__ import annotations

from collections import defaultdict

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.work import WorkQueue
from kubetwin.model.errors import Object
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions, keep_in_list
from kubetwin.store import Change

Place = tuple[str, str, str]
"""Resource, namespace and name."""


class GarbageCollector:
    """Follows owner references: orphan, foreground and background deletion."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._uids: dict[str, Place] = {}
        self._dependents: dict[str, set[Place]] = defaultdict(set)
        self.queue: WorkQueue[Place] = WorkQueue(self._visit)
        cluster.store.listen("", self._changed)

    def _changed(self, change: Change) -> None:
        if change.key == "events":
            return
        place = (change.key, change.namespace, change.name)
        metadata = change.object["metadata"]
        for owner in _owners(change.previous):
            self._dependents[owner["uid"]].discard(place)
            if not self._dependents[owner["uid"]]:
                del self._dependents[owner["uid"]]
            self._visit_owner(owner["uid"])
        if change.type == "DELETED":
            self._uids.pop(metadata["uid"], None)
            for dependent in self._dependents.get(metadata["uid"], ()):
                self.queue.add(dependent)
            return
        self._uids[metadata["uid"]] = place
        for owner in _owners(change.object):
            self._dependents[owner["uid"]].add(place)
        if metadata.get("ownerReferences") or _waits(change.object):
            self.queue.add(place)

    def _visit_owner(self, uid: str) -> None:
        place = self._uids.get(uid)
        owner = self.cluster.store.get(*place) if place else None
        if place and owner is not None and _waits(owner):
            self.queue.add(place)

    def _visit(self, place: Place) -> None:
        obj = self.cluster.store.get(*place)
        if obj is None:
            return
        finalizers = obj["metadata"].get("finalizers") or []
        if obj["metadata"].get("deletionTimestamp"):
            if "orphan" in finalizers:
                self._orphan(place, obj)
            elif "foregroundDeletion" in finalizers:
                self._foreground(place, obj)
        owners = _owners(obj)
        # A dependent is deleted when all its owners are deleted, or wait only for its deletion.
        if (
            owners
            and not obj["metadata"].get("deletionTimestamp")
            and not any(self._holds(o, place[1]) for o in owners)
        ):
            resource = self.cluster.registry.by_key(place[0])
            options = DeleteOptions(propagation="Background", uid=obj["metadata"]["uid"])
            self.cluster.delete(resource, place[1], place[2], options)

    def _holds(self, reference: Object, namespace: str) -> bool:
        place = self._uids.get(reference["uid"])
        owner = self.cluster.store.get(*place) if place else None
        if place is None or owner is None or place[1] not in ("", namespace):
            return False
        return "foregroundDeletion" not in (owner["metadata"].get("finalizers") or [])

    def _orphan(self, place: Place, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        for dependent in sorted(self._dependents.get(uid, ())):
            resource = self.cluster.registry.by_key(dependent[0])
            self.cluster.modify(resource, dependent[1], dependent[2], lambda obj: _disown(obj, uid))
        self._unfinalize(place, "orphan")

    def _foreground(self, place: Place, owner: Object) -> None:
        uid = owner["metadata"]["uid"]
        blocking = False
        for dependent in sorted(self._dependents.get(uid, ())):
            obj = self.cluster.store.get(*dependent)
            if obj is None:
                continue
            blocking = blocking or any(o["uid"] == uid and o.get("blockOwnerDeletion") for o in _owners(obj))
            self.queue.add(dependent)
        if not blocking:
            self._unfinalize(place, "foregroundDeletion")

    def _unfinalize(self, place: Place, finalizer: str) -> None:
        def write(obj: Object) -> None:
            keep_in_list(obj["metadata"], "finalizers", lambda each: each != finalizer)

        self.cluster.modify(self.cluster.registry.by_key(place[0]), place[1], place[2], write)


def _owners(obj: Object | None) -> list[Object]:
    return (obj["metadata"].get("ownerReferences") or []) if obj is not None else []


def _waits(obj: Object) -> bool:
    finalizers = obj["metadata"].get("finalizers") or []
    deleting = bool(obj["metadata"].get("deletionTimestamp"))
    return deleting and ("orphan" in finalizers or "foregroundDeletion" in finalizers)


def _disown(obj: Object, uid: str) -> None:
    keep_in_list(obj["metadata"], "ownerReferences", lambda owner: owner["uid"] != uid)


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    GarbageCollector(cluster)
