"""The volume binder: binds claims to volumes, and releases those without a user."""

from __future__ import annotations

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.work import WorkQueue
from kubetwin.model.errors import Object
from kubetwin.model.names import namespaced_name
from kubetwin.model.quantity import parse_quantity
from kubetwin.resources.claims import PROTECTION, requested_storage
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import keep_in_list
from kubetwin.store import Change

CLAIMS, VOLUMES = "persistentvolumeclaims", "persistentvolumes"


def suits(claim: Object, volume: Object) -> bool:
    """Whether a free volume can serve a claim."""
    wanted, offered = claim["spec"], volume["spec"]
    if volume["metadata"].get("deletionTimestamp") or not _is_free_for(claim, volume):
        return False
    if wanted.get("volumeName"):
        return bool(wanted["volumeName"] == volume["metadata"]["name"])
    return (
        (wanted.get("storageClassName") or "") == (offered.get("storageClassName") or "")
        and set(wanted.get("accessModes") or []) <= set(offered.get("accessModes") or [])
        and parse_quantity(offered["capacity"].get("storage", 0)) >= requested_storage(claim)
    )


def _is_free_for(claim: Object, volume: Object) -> bool:
    reference = volume["spec"].get("claimRef")
    if not reference:
        return True
    metadata = claim["metadata"]
    if (reference["namespace"], reference["name"]) != namespaced_name(claim):
        return False
    return bool(reference.get("uid", metadata["uid"]) == metadata["uid"])


def choose(claim: Object, volumes: list[Object]) -> Object | None:
    """The smallest volume that suits."""
    suitable = [volume for volume in volumes if suits(claim, volume)]
    return min(suitable, key=lambda v: parse_quantity(v["spec"]["capacity"].get("storage", 0)), default=None)


class Binder:
    """Reconciles all claims and volumes when one of them, or a pod that uses one, changes."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.claims, self.volumes = cluster.registry.by_key(CLAIMS), cluster.registry.by_key(VOLUMES)
        self.queue: WorkQueue[str] = WorkQueue(self._reconcile)
        for key in (CLAIMS, VOLUMES):
            cluster.store.listen(key, lambda _change: self.queue.add(""))
        cluster.store.listen("pods", self._pod_changed)

    def _pod_changed(self, change: Change) -> None:
        ended = change.type == "DELETED" or change.object["status"].get("phase") in ("Succeeded", "Failed")
        if ended and any("persistentVolumeClaim" in v for v in change.object["spec"].get("volumes") or []):
            self.queue.add("")

    def _reconcile(self, _key: str) -> None:
        for claim in self.cluster.store.objects(CLAIMS):
            if claim["metadata"].get("deletionTimestamp"):
                self._let_go(claim)
            elif claim["status"].get("phase") != "Bound":
                volume = choose(claim, self.cluster.store.objects(VOLUMES))
                if volume is not None:
                    self._bind(claim, volume)
        for volume in self.cluster.store.objects(VOLUMES):
            self._update_volume(volume)

    def _let_go(self, claim: Object) -> None:
        if not self._in_use(*namespaced_name(claim)):
            self.cluster.modify(self.claims, *namespaced_name(claim), _unprotect)

    def _in_use(self, namespace: str, name: str) -> bool:
        return any(
            (volume.get("persistentVolumeClaim") or {}).get("claimName") == name
            for pod in self.cluster.store.objects("pods", namespace)
            if pod["spec"].get("nodeName") and pod["status"].get("phase") not in ("Succeeded", "Failed")
            for volume in pod["spec"].get("volumes") or []
        )

    def _bind(self, claim: Object, volume: Object) -> None:
        metadata, name = claim["metadata"], volume["metadata"]["name"]

        def take(stored: Object) -> None:
            stored["spec"]["claimRef"] = {
                "kind": "PersistentVolumeClaim",
                "apiVersion": "v1",
                "namespace": metadata["namespace"],
                "name": metadata["name"],
                "uid": metadata["uid"],
            }
            stored["status"]["phase"] = "Bound"

        def give(stored: Object) -> None:
            stored["spec"]["volumeName"] = name
            stored["metadata"].setdefault("annotations", {})["pv.kubernetes.io/bind-completed"] = "yes"
            modes, capacity = volume["spec"].get("accessModes") or [], volume["spec"]["capacity"]
            stored["status"] = {"phase": "Bound", "accessModes": modes, "capacity": capacity}

        self.cluster.modify(self.volumes, "", name, take)
        self.cluster.modify(self.claims, *namespaced_name(claim), give)

    def _update_volume(self, volume: Object) -> None:
        reference = volume["spec"].get("claimRef")
        name = volume["metadata"]["name"]
        claim = self.cluster.store.get(CLAIMS, reference["namespace"], reference["name"]) if reference else None
        phase = volume["status"].get("phase")
        if reference is None:
            phase = "Available"
        elif claim is None and phase == "Bound":
            phase = "Released"
        self.cluster.modify(self.volumes, "", name, lambda stored: stored["status"].update(phase=phase))
        if volume["metadata"].get("deletionTimestamp") and phase != "Bound":
            self.cluster.modify(self.volumes, "", name, _unprotect)


def _unprotect(obj: Object) -> None:
    keep_in_list(obj["metadata"], "finalizers", lambda each: each not in PROTECTION.values())


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    Binder(cluster)
