"""Effect of a DELETE on an object: removed at once, or marked until its grace period and its finalizers are over."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from kubetwin.model import errors, times
from kubetwin.model.errors import ApiError, Object
from kubetwin.resources.resource import Resource

POLICIES = ("Background", "Foreground", "Orphan")


@dataclass(frozen=True)
class DeleteOptions:
    """The part of `DeleteOptions` that changes the effect."""

    grace_seconds: int | None = None
    propagation: str = ""
    """Background, Foreground, Orphan, or "" for the resource's default."""
    uid: str = ""
    resource_version: str = ""

    def check(self, resource: Resource, obj: Object) -> None:
        """Raise 409 when a precondition does not hold."""
        metadata = obj["metadata"]
        if self.uid and self.uid != metadata["uid"]:
            raise _precondition(resource, metadata["name"], "UID", self.uid, metadata["uid"])
        if self.resource_version and self.resource_version != metadata["resourceVersion"]:
            found = metadata["resourceVersion"]
            raise _precondition(resource, metadata["name"], "ResourceVersion", self.resource_version, found)


def _precondition(resource: Resource, name: str, what: str, wanted: str, found: str) -> ApiError:
    detail = (
        f"the {what} in the precondition ({wanted}) does not match the {what} in record ({found}). "
        "The object might have been deleted and then recreated"
    )
    return errors.conflict(resource.group_resource, name, detail, kind=resource.kind)


def keep_in_list(metadata: Object, field: str, keep: Callable[[Any], bool]) -> None:
    """Leave only some entries of a list of metadata, such as the finalizers; a list that becomes empty goes."""
    left = [entry for entry in metadata.pop(field, None) or [] if keep(entry)]
    if left:
        metadata[field] = left


def must_stay(resource: Resource, obj: Object) -> bool:
    """Whether an object that is marked for deletion has to wait for a finalizer or for its grace period."""
    if obj["metadata"].get("finalizers") or obj["metadata"].get("deletionGracePeriodSeconds"):
        return True
    return resource.mark_deleted is not None and resource.mark_deleted(copy.deepcopy(obj))


def deletion_mark(resource: Resource, old: Object, options: DeleteOptions) -> Object | None:
    """The marked object; None if the deletion removes it at once.

    A pod is always marked first (watches see MODIFIED and then DELETED), other kinds only if finalizers hold them.
    """
    new = copy.deepcopy(old)
    metadata = new["metadata"]
    metadata["finalizers"] = _finalizers(resource, old, options)
    if not metadata["finalizers"]:
        del metadata["finalizers"]
    stays = resource.mark_deleted is not None and resource.mark_deleted(new)
    grace = resource.grace_seconds(old, options.grace_seconds) if resource.grace_seconds else None
    if grace is None and not stays and "finalizers" not in metadata:
        return None
    previous = metadata.get("deletionGracePeriodSeconds")
    if metadata.get("deletionTimestamp") and (grace is None or (previous is not None and grace >= previous)):
        return new
    if not metadata.get("deletionTimestamp") and "generation" in metadata:
        metadata["generation"] += 1
    metadata["deletionTimestamp"] = times.seconds(times.now() + timedelta(seconds=grace or 0))
    if not stays:
        metadata["deletionGracePeriodSeconds"] = grace or 0
    return new


def _finalizers(resource: Resource, old: Object, options: DeleteOptions) -> list[str]:
    kept = [f for f in old["metadata"].get("finalizers") or [] if f not in ("orphan", "foregroundDeletion")]
    policy = options.propagation
    if not policy:
        if len(kept) != len(old["metadata"].get("finalizers") or []):
            return list(old["metadata"]["finalizers"])
        policy = "Orphan" if resource.orphans_by_default else "Background"
    if policy == "Orphan":
        return [*kept, "orphan"]
    return [*kept, "foregroundDeletion"] if policy == "Foreground" else kept
