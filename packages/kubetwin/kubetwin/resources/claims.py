"""PersistentVolumes and the claims on them."""

from __future__ import annotations

from kubetwin.model import times
from kubetwin.model.errors import FieldError, Object, forbidden_field, not_supported, required
from kubetwin.model.go_types import go_difference
from kubetwin.resources.resource import STATUS, Column, Resource
from kubetwin.store import Store

PROTECTION = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
}
_MODES = {"ReadWriteOnce": "RWO", "ReadOnlyMany": "ROX", "ReadWriteMany": "RWX", "ReadWriteOncePod": "RWOP"}


def _protect(obj: Object, finalizer: str) -> None:
    finalizers = obj["metadata"].setdefault("finalizers", [])
    if finalizer not in finalizers:
        finalizers.append(finalizer)


def _default_claim(claim: Object) -> None:
    claim.setdefault("spec", {}).setdefault("volumeMode", "Filesystem")


def _prepare_claim(claim: Object, _store: Store) -> None:
    _protect(claim, PROTECTION["persistentvolumeclaims"])
    claim["status"] = {"phase": "Pending"}


def _validate_claim(claim: Object) -> list[FieldError]:
    faults = []
    if not claim["spec"].get("accessModes"):
        faults.append(required("spec.accessModes", "at least 1 access mode is required"))
    faults += [
        not_supported("spec.accessModes", mode, sorted(_MODES))
        for mode in claim["spec"].get("accessModes") or []
        if mode not in _MODES
    ]
    if "storage" not in ((claim["spec"].get("resources") or {}).get("requests") or {}):
        faults.append(required("spec.resources[storage]"))
    return faults


def _validate_claim_update(new: Object, old: Object) -> list[FieldError]:
    def fixed(claim: Object) -> Object:
        free = ["resources", "volumeAttributesClassName"] if old["status"].get("phase") == "Bound" else []
        if not old["spec"].get("volumeName"):
            free.append("volumeName")  # the binder fills it in
        kept = {key: old["spec"][key] for key in free if key in old["spec"]}
        return {**{key: value for key, value in claim["spec"].items() if key not in free}, **kept}

    before, after = fixed(old), fixed(new)
    if after == before:
        return []
    detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [forbidden_field("spec", f"{detail}\n{go_difference(before, after, 'PersistentVolumeClaimSpec')}")]


def _default_volume(volume: Object) -> None:
    spec = volume.setdefault("spec", {})
    spec.setdefault("persistentVolumeReclaimPolicy", "Retain")
    spec.setdefault("volumeMode", "Filesystem")
    if "hostPath" in spec:
        spec["hostPath"].setdefault("type", "")


def _prepare_volume(volume: Object, _store: Store) -> None:
    _protect(volume, PROTECTION["persistentvolumes"])
    volume["status"] = {"phase": "Pending"}


def _validate_volume(volume: Object) -> list[FieldError]:
    faults = []
    if not volume["spec"].get("accessModes"):
        faults.append(required("spec.accessModes"))
    if not volume["spec"].get("capacity"):
        faults.append(required("spec.capacity"))
    return faults


def _modes(obj: Object) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in obj["spec"].get("accessModes") or [])


def _age(obj: Object) -> str:
    return times.age(obj["metadata"]["creationTimestamp"], times.now())


def _claimed_by(volume: Object) -> str:
    claim = volume["spec"].get("claimRef") or {}
    return f"{claim['namespace']}/{claim['name']}" if claim else ""


RESOURCES = (
    Resource(
        kind="PersistentVolumeClaim",
        plural="persistentvolumeclaims",
        type_name="io.k8s.api.core.v1.PersistentVolumeClaim",
        short_names=("pvc",),
        storage_hash="QWTyNDq0dC4=",
        returns_deleted=True,
        subresources=(STATUS,),
        default=_default_claim,
        prepare=_prepare_claim,
        validate=_validate_claim,
        validate_update=_validate_claim_update,
        columns=(
            Column("Name", lambda c: c["metadata"]["name"], format="name"),
            Column("Status", lambda c: c["status"].get("phase", "")),
            Column("Volume", lambda c: c["spec"].get("volumeName", "")),
            Column("Capacity", lambda c: (c["status"].get("capacity") or {}).get("storage", "")),
            Column("Access Modes", _modes),
            Column("StorageClass", lambda c: c["spec"].get("storageClassName", "")),
            Column("Age", _age),
        ),
    ),
    Resource(
        kind="PersistentVolume",
        plural="persistentvolumes",
        namespaced=False,
        type_name="io.k8s.api.core.v1.PersistentVolume",
        short_names=("pv",),
        returns_deleted=True,
        subresources=(STATUS,),
        default=_default_volume,
        prepare=_prepare_volume,
        validate=_validate_volume,
        columns=(
            Column("Name", lambda v: v["metadata"]["name"], format="name"),
            Column("Capacity", lambda v: v["spec"]["capacity"].get("storage", "")),
            Column("Access Modes", _modes),
            Column("Reclaim Policy", lambda v: v["spec"]["persistentVolumeReclaimPolicy"]),
            Column("Status", lambda v: v["status"].get("phase", "")),
            Column("Claim", _claimed_by),
            Column("StorageClass", lambda v: v["spec"].get("storageClassName", "")),
            Column("Age", _age),
        ),
    ),
)
