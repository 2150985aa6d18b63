"""Create, update and delete by Kubernetes' rules. The HTTP side and the controllers both come through here."""

from __future__ import annotations

import copy
import secrets
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kubetwin.model import errors, times
from kubetwin.model.apply import created_by, updated_by
from kubetwin.model.errors import FieldError, Object, bad_value, forbidden_field, required, show, too_long
from kubetwin.model.names import fault_of_prefix, namespaced_name, qualified_name, validate_labels
from kubetwin.resources import Registry
from kubetwin.resources.resource import Resource
from kubetwin.state.deletion import DeleteOptions, deletion_mark, must_stay
from kubetwin.store import Store

_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"
"""Letters of generated names: without vowels, so that they form no words (apimachinery's `rand`)."""

_OWNED_BY_SERVER = ("uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation")

_OWNER_KEYS = ("kind", "name", "uid")
_STANDARD_FINALIZERS = ("kubernetes", "orphan", "foregroundDeletion")
MAX_ANNOTATION_BYTES = 256 * 1024

Admission = Callable[[Resource, Object], None]
"""Refuses a new object by raising an `ApiError`, or completes it."""


@dataclass(frozen=True, kw_only=True)
class NodeTimes:
    """After how long a silent node is lost, and its pods with it."""

    grace_seconds: float = 50
    """kube-controller-manager's --node-monitor-grace-period."""
    toleration_seconds: int = 300
    """kube-apiserver's --default-not-ready-toleration-seconds and --default-unreachable-toleration-seconds."""


@dataclass(frozen=True)
class Deleted:
    """Result of a deletion: the object's last state, and whether it was removed."""

    object: Object
    gone: bool


def random_suffix() -> str:
    return "".join(secrets.choice(_ALPHABET) for _ in range(5))


class Cluster:
    """The objects of one cluster and the rules for changing them."""

    def __init__(self, store: Store, registry: Registry, node_times: NodeTimes | None = None) -> None:
        self.store = store
        self.registry = registry
        self.node_times = node_times or NodeTimes()
        self.admission: list[Admission] = []

    def get(self, resource: Resource, namespace: str, name: str) -> Object:
        """The stored object, to be read only.

        Raises:
            ApiError: 404 when it does not exist.
        """
        found = self.store.get(resource.key, namespace, name)
        if found is None:
            raise errors.not_found(resource.group_resource, name)
        return found

    def create(
        self, resource: Resource, namespace: str, obj: Object, *, dry_run: bool = False, manager: str = ""
    ) -> Object:
        """Default, check, admit and store a new object; `manager` is the client that owns its fields.

        Raises:
            ApiError: 403, 404, 409 or 422, as the API server would.
        """
        self._check_namespace(resource, namespace, obj)
        obj = self._new_object(resource, namespace, obj)
        resource.default(obj)
        if manager and _tracks_owners(resource):
            obj = created_by(manager, obj, resource.type_schema())
        resource.prepare(obj, self.store)
        faults = [*_metadata_errors(resource, obj), *resource.validate(obj)]
        name = obj["metadata"].get("name", "")
        if faults:
            raise errors.invalid(resource.kind, resource.group, name, faults)
        if self.store.get(resource.key, namespace, name) is not None:
            raise errors.already_exists(resource.group_resource, name)
        for admit in self.admission:
            admit(resource, obj)
        return obj if dry_run else self.store.put(resource.key, obj)

    def update(
        self,
        resource: Resource,
        namespace: str,
        obj: Object,
        *,
        subresource: str = "",
        dry_run: bool = False,
        manager: str = "",
    ) -> Object:
        """Replace an object (or only its status) by `obj`; `manager` is the client, as `managedFields` name it.

        Raises:
            ApiError: 404, 409 or 422.
        """
        old = self.get(resource, namespace, obj["metadata"]["name"])
        _check_preconditions(resource, old, obj)
        new = _updated(resource, old, obj, subresource)
        resource.default(new)
        if subresource != "status":
            resource.prepare_update(new, old, self.store)
        if _content(new) == _content(old):
            return old
        faults: list[FieldError] = [*_new_finalizer_errors(new, old), *_metadata_errors(resource, new)]
        if subresource == "status":
            faults += resource.validate_status(new)
        else:
            faults += [*resource.validate_update(new, old)] or [*resource.validate(new)]
        if faults:
            raise errors.invalid(resource.kind, resource.group, new["metadata"]["name"], faults)
        if resource.has_generation and not subresource and _specified(resource, new) != _specified(resource, old):
            new["metadata"]["generation"] = old["metadata"].get("generation", 0) + 1
        if subresource != "status" and _tracks_owners(resource):
            new = updated_by(manager, old, new, resource.type_schema())
        return new if dry_run else self.write(resource, new, old)

    def write(self, resource: Resource, new: Object, old: Object) -> Object:
        """Store a validated state, or remove the object when no finalizer holds its deletion any more."""
        if new["metadata"].get("deletionTimestamp") and not must_stay(resource, new):
            return self.store.remove(resource.key, old)
        return self.store.put(resource.key, new)

    def modify(self, resource: Resource, namespace: str, name: str, change: Callable[[Object], None]) -> Object | None:
        """Change a copy of an object without validation (for controllers); None if it does not exist."""
        old = self.store.get(resource.key, namespace, name)
        if old is None:
            return None
        new = copy.deepcopy(old)
        change(new)
        return old if new == old else self.write(resource, new, old)

    def set_status(self, resource: Resource, obj: Object, status: Object) -> None:
        """Write the whole status of an object (for controllers)."""
        self.modify(resource, *namespaced_name(obj), lambda stored: stored.update(status=status))

    def delete(
        self,
        resource: Resource,
        namespace: str,
        name: str,
        options: DeleteOptions | None = None,
        *,
        dry_run: bool = False,
    ) -> Deleted:
        """Delete an object, or mark it for those who have to finish the deletion.

        Raises:
            ApiError: 404, or 409 when a precondition does not hold.
        """
        options = options or DeleteOptions()
        old = self.get(resource, namespace, name)
        options.check(resource, old)
        marked = deletion_mark(resource, old, options)
        if dry_run:
            return Deleted(marked or old, gone=marked is None)
        if marked is None:
            return Deleted(self.store.remove(resource.key, old), gone=True)
        if marked == old:
            return Deleted(old, gone=False)
        stored = self.store.put(resource.key, marked)
        if must_stay(resource, marked):
            return Deleted(stored, gone=False)
        self.store.remove(resource.key, stored)
        return Deleted(stored, gone=True)

    def _check_namespace(self, resource: Resource, namespace: str, obj: Object) -> None:
        if not resource.namespaced:
            return
        found = self.store.get("namespaces", "", namespace)
        if found is None:
            raise errors.not_found(errors.GroupResource("namespaces"), namespace)
        if found["metadata"].get("deletionTimestamp"):
            detail = f"unable to create new content in namespace {namespace} because it is being terminated"
            raise errors.forbidden(resource.group_resource, obj["metadata"].get("name", ""), detail)

    def _new_object(self, resource: Resource, namespace: str, obj: Object) -> Object:
        metadata: Object = dict(obj.get("metadata") or {})
        if metadata.get("resourceVersion"):
            raise errors.bad_request("resourceVersion should not be set on objects to be created")
        for server_field in (*_OWNED_BY_SERVER, "selfLink"):
            metadata.pop(server_field, None)
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = metadata["generateName"][:58] + random_suffix()
        metadata.pop("namespace", None)
        if resource.namespaced:
            metadata["namespace"] = namespace
        metadata["uid"] = str(uuid.uuid4())
        metadata["creationTimestamp"] = times.seconds(times.now())
        if resource.has_generation:
            metadata["generation"] = 1
        obj = copy.deepcopy({**obj, "metadata": metadata})
        if resource.has_status and not resource.keeps_status:
            obj["status"] = {}
        return {"kind": resource.kind, "apiVersion": resource.group_version, **obj}


def _tracks_owners(resource: Resource) -> bool:
    """Whether `managedFields` say who set what; not of events and leases, which many write often and none applies."""
    return bool(resource.type_schema()) and resource.kind not in ("Event", "Lease")


def _content(obj: Object) -> Object:
    return {**obj, "metadata": {k: v for k, v in obj["metadata"].items() if k != "resourceVersion"}}


def _specified(resource: Resource, obj: Object) -> Object:
    """The fields whose change makes a new generation; without a status subresource the status is one of them."""
    left_out = ("metadata", "status") if resource.has_status or not resource.custom else ("metadata",)
    return {key: value for key, value in obj.items() if key not in left_out}


def _check_preconditions(resource: Resource, old: Object, new: Object) -> None:
    name = old["metadata"]["name"]
    uid = new["metadata"].get("uid")
    if uid and uid != old["metadata"]["uid"]:
        namespace = old["metadata"].get("namespace", "")
        place = "/".join(filter(None, ["/registry", resource.plural, namespace, name]))
        detail = (
            f"StorageError: invalid object, Code: 4, Key: {place}, ResourceVersion: 0, AdditionalErrorMsg: "
            f"Precondition failed: UID in precondition: {uid}, UID in object meta: {old['metadata']['uid']}"
        )
        raise errors.conflict(resource.group_resource, name, detail)
    version = new["metadata"].get("resourceVersion")
    if version and not version.isdigit():
        raise errors.ApiError(500, "", f'strconv.ParseUint: parsing "{version}": invalid syntax')
    if version and version != old["metadata"]["resourceVersion"]:
        raise errors.conflict(resource.group_resource, name)


def _updated(resource: Resource, old: Object, obj: Object, subresource: str) -> Object:
    """The new state before defaults: fields of the server stay, and the status changes only through its subresource."""
    new = copy.deepcopy(obj)
    metadata = dict(new.get("metadata") or {})
    for server_field in (*_OWNED_BY_SERVER, "name", "namespace", "generateName"):
        metadata.pop(server_field, None)
        if server_field in old["metadata"]:
            metadata[server_field] = old["metadata"][server_field]
    if "managedFields" in old["metadata"] and "managedFields" not in metadata:
        metadata["managedFields"] = old["metadata"]["managedFields"]
    metadata["resourceVersion"] = old["metadata"]["resourceVersion"]
    if subresource == "status":
        return {**copy.deepcopy(old), "metadata": metadata, "status": new.get("status") or {}}
    if resource.has_status:
        new["status"] = old.get("status", {})
    return {**new, "kind": resource.kind, "apiVersion": resource.group_version, "metadata": metadata}


def _metadata_errors(resource: Resource, obj: Object) -> list[FieldError]:
    metadata: dict[str, Any] = obj["metadata"]
    name = metadata.get("name", "")
    faults: list[FieldError] = []
    prefix = metadata.get("generateName", "")
    if prefix and (fault := fault_of_prefix(resource.name_rule, prefix)):
        faults.append(bad_value("metadata.generateName", prefix, fault))
    if not name:
        faults.append(required("metadata.name", "name or generateName is required"))
    elif fault := resource.name_rule(name):
        faults.append(bad_value("metadata.name", name, fault))
    faults += validate_labels(metadata.get("labels"), "metadata.labels")
    annotations = metadata.get("annotations") or {}
    for key in annotations:
        if fault := qualified_name(key.lower()):
            faults.append(bad_value("metadata.annotations", key, fault))
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > MAX_ANNOTATION_BYTES:
        faults.append(too_long("metadata.annotations", MAX_ANNOTATION_BYTES))
    faults += _owner_errors(metadata.get("ownerReferences") or [])
    return faults + _finalizer_errors(resource, metadata.get("finalizers") or [])


def _new_finalizer_errors(new: Object, old: Object) -> list[FieldError]:
    added = sorted(set(new["metadata"].get("finalizers") or []) - set(old["metadata"].get("finalizers") or []))
    if not added or not old["metadata"].get("deletionTimestamp"):
        return []
    listed = ", ".join(show(each) for each in added)
    detail = f"no new finalizers can be added if the object is being deleted, found new finalizers []string{{{listed}}}"
    return [forbidden_field("metadata.finalizers", detail)]


def _owner_errors(owners: list[Object]) -> list[FieldError]:
    path, controller, faults = "metadata.ownerReferences", "", []
    for owner in owners:
        if not owner.get("apiVersion"):
            faults.append(bad_value(f"{path}.apiVersion", "", "version must not be empty"))
        faults += [bad_value(f"{path}.{key}", "", "must not be empty") for key in _OWNER_KEYS if not owner.get(key)]
        if (owner.get("apiVersion"), owner.get("kind")) == ("v1", "Event"):
            faults.append(bad_value(path, owner, "/v1, Kind=Event is disallowed from being an owner"))
        if owner.get("controller"):
            name = f"{owner.get('kind', '')}/{owner.get('name', '')}"
            if controller:
                detail = (
                    "Only one reference can have Controller set to true. "
                    f'Found "true" in references for {controller} and {name}'
                )
                faults.append(bad_value(path, owners, detail))
            controller = controller or name
    return faults


def _finalizer_errors(resource: Resource, finalizers: list[str]) -> list[FieldError]:
    path = "metadata.finalizers"
    faults = [bad_value(path, each, fault) for each in finalizers if (fault := qualified_name(each))]
    if {"orphan", "foregroundDeletion"} <= set(finalizers):
        faults.append(bad_value(path, finalizers, "finalizer orphan and foregroundDeletion cannot be both set"))
    if not resource.custom:
        detail = "name is neither a standard finalizer name nor is it fully qualified"
        faults += [
            bad_value(f"{path}[{place}]", each, detail)
            for place, each in enumerate(finalizers)
            if "/" not in each and each not in _STANDARD_FINALIZERS
        ]
    return faults
