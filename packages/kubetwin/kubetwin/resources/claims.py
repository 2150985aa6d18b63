"""PersistentVolumes and the claims on them."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from kubetwin.model.errors import (
    FieldError,
    GroupResource,
    Object,
    bad_value,
    forbidden,
    forbidden_field,
    not_supported,
    one_of,
    required,
)
from kubetwin.model.go_types import go_difference
from kubetwin.model.names import dns_subdomain
from kubetwin.model.quantity import parse_quantity
from kubetwin.resources.resource import AGE, NAME, STATUS, Column, Resource
from kubetwin.resources.selector_validation import selector_faults
from kubetwin.store import Store

PROTECTION = {
    "persistentvolumeclaims": "kubernetes.io/pvc-protection",
    "persistentvolumes": "kubernetes.io/pv-protection",
}
_VOLUME_MODES = ("Block", "Filesystem")
_RECLAIM = ("Delete", "Recycle", "Retain")
_SOURCES = ("hostPath", "nfs", "iscsi", "fc", "local", "csi", "glusterfs", "cephfs", "rbd", "azureFile", "flexVolume")
"""Sources of a volume, in the order of the server's checks; the cloud's own are gone."""

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
    """Faults of a claim's spec (pkg/apis/core/validation: ValidatePersistentVolumeClaimSpec)."""
    spec = claim["spec"]
    faults = [*_access_faults(spec, "at least 1 access mode is required")]
    faults += selector_faults(spec.get("selector"), "spec.selector")
    amount = ((spec.get("resources") or {}).get("requests") or {}).get("storage")
    if amount is None:
        faults.append(required("spec.resources[storage]"))
    elif parse_quantity(amount) <= 0:
        faults.append(bad_value("spec.resources[storage]", amount, "must be greater than zero"))
    return [*faults, *_storage_faults(spec), *_source_faults(spec)]


def _access_faults(spec: Object, detail: str) -> Iterator[FieldError]:
    modes = spec.get("accessModes") or []
    if not modes:
        yield required("spec.accessModes", detail)
    for mode in modes:
        if mode not in _MODES:
            yield not_supported("spec.accessModes", mode, sorted(_MODES))
    if "ReadWriteOncePod" in modes and len(set(modes)) > 1:
        yield forbidden_field("spec.accessModes", "may not use ReadWriteOncePod with other access modes")


def _storage_faults(spec: Object) -> Iterator[FieldError]:
    name = spec.get("storageClassName", "")
    if name and (fault := dns_subdomain(name)):
        yield bad_value("spec.storageClassName", name, fault)
    yield from one_of("spec.volumeMode", spec["volumeMode"], _VOLUME_MODES)


def _source_faults(spec: Object) -> Iterator[FieldError]:
    for field in ("dataSource", "dataSourceRef"):
        source, path = spec.get(field), f"spec.{field}"
        if source is None:
            continue
        for key in ("name", "kind"):
            if not source.get(key):
                yield required(f"{path}.{key}")
        if not source.get("apiGroup") and source.get("kind") != "PersistentVolumeClaim":
            detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
            yield bad_value(path, source.get("kind", ""), detail)


def _validate_claim_update(new: Object, old: Object) -> list[FieldError]:
    def fixed(claim: Object) -> Object:
        free = ["resources", "volumeAttributesClassName"] if old["status"].get("phase") == "Bound" else []
        if not old["spec"].get("volumeName"):
            free.append("volumeName")  # the binder fills it in
        kept = {key: old["spec"][key] for key in free if key in old["spec"]}
        return {**{key: value for key, value in claim["spec"].items() if key not in free}, **kept}

    before, after = fixed(old), fixed(new)
    if after == before:
        _refuse_resizing(new, old)
        return []
    detail = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"
    return [forbidden_field("spec", f"{detail}\n{go_difference(before, after, 'PersistentVolumeClaimSpec')}")]


def requested_storage(claim: Object) -> Fraction:
    """Requested size of a claim, in bytes."""
    requests = (claim["spec"].get("resources") or {}).get("requests") or {}
    return parse_quantity(requests.get("storage", 0))


def _refuse_resizing(new: Object, old: Object) -> None:
    """Nothing here makes volumes, so none can grow (admission plugin PersistentVolumeClaimResize).

    Raises:
        ApiError: 403 for a larger request.
    """
    if requested_storage(new) > requested_storage(old):
        detail = (
            "only dynamically provisioned pvc can be resized and the storageclass that provisions the pvc "
            "must support resize"
        )
        raise forbidden(GroupResource("persistentvolumeclaims"), old["metadata"]["name"], detail)


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
    """Faults of a volume's spec (pkg/apis/core/validation: ValidatePersistentVolumeSpec)."""
    spec = volume["spec"]
    faults, capacity = [*_access_faults(spec, "")], spec.get("capacity") or {}
    if not capacity:
        faults.append(required("spec.capacity"))
    if set(capacity) != {"storage"}:
        faults.append(not_supported("spec.capacity", spec.get("capacity"), ("storage",)))
    faults += [
        bad_value(f"spec.capacity[{name}]", amount, "must be greater than zero")
        for name, amount in capacity.items()
        if parse_quantity(amount) <= 0
    ]
    if spec["persistentVolumeReclaimPolicy"] not in _RECLAIM:
        policy = spec["persistentVolumeReclaimPolicy"]
        faults.append(not_supported("spec.persistentVolumeReclaimPolicy", policy, _RECLAIM))
    sources = [field for field in _SOURCES if field in spec]
    faults += [forbidden_field(f"spec.{each}", "may not specify more than 1 volume type") for each in sources[1:]]
    if not sources:
        faults.append(required("spec", "must specify a volume type"))
    return [*faults, *_storage_faults(spec)]


def _modes(obj: Object) -> str:
    return ",".join(_MODES.get(mode, mode) for mode in obj["spec"].get("accessModes") or [])


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
            NAME,
            Column("Status", lambda c: c["status"].get("phase", "")),
            Column("Volume", lambda c: c["spec"].get("volumeName", "")),
            Column("Capacity", lambda c: (c["status"].get("capacity") or {}).get("storage", "")),
            Column("Access Modes", _modes),
            Column("StorageClass", lambda c: c["spec"].get("storageClassName", "")),
            AGE,
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
            NAME,
            Column("Capacity", lambda v: v["spec"]["capacity"].get("storage", "")),
            Column("Access Modes", _modes),
            Column("Reclaim Policy", lambda v: v["spec"]["persistentVolumeReclaimPolicy"]),
            Column("Status", lambda v: v["status"].get("phase", "")),
            Column("Claim", _claimed_by),
            Column("StorageClass", lambda v: v["spec"].get("storageClassName", "")),
            AGE,
        ),
    ),
)
