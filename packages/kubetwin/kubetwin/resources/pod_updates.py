"""Updates of pods: what may change (pkg/apis/core/validation: ValidatePodUpdate)."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from kubetwin.model.errors import FieldError, Object, bad_value, forbidden_field, required
from kubetwin.model.go_types import go_difference

_ONLY = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)
_LONGEST_SECONDS = 2**31 - 1


def pod_update_faults(new: Object, old: Object) -> list[FieldError]:
    """A pod's spec is fixed but for images, a shorter deadline, more tolerations and fewer scheduling gates."""
    before, after = old["spec"], new["spec"]
    for group in ("containers", "initContainers"):
        if len(after.get(group) or []) != len(before.get(group) or []):
            return [forbidden_field(f"spec.{group}", "pod updates may not add or remove containers")]
    if faults := [*_images(after), *_deadline(before, after)]:
        return faults
    faults = [*_tolerations(before, after), *_gates(before, after)]
    allowed = copy.deepcopy(after)
    if before.get("schedulingGates"):
        faults += _selector_of_gated(before, allowed)
    for group in ("containers", "initContainers"):
        for mine, theirs in zip(allowed.get(group) or [], before.get(group) or [], strict=True):
            mine["image"] = theirs.get("image")
    for field in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        allowed.pop(field, None)
        if field in before:
            allowed[field] = before[field]
    if allowed != before:
        changed = go_difference(_as_recorded(before), _as_recorded(allowed), "PodSpec")
        faults.append(forbidden_field("spec", f"{_ONLY}\n{changed}"))
    return faults


def _images(after: Object) -> Iterator[FieldError]:
    """Images are checked anew here, so that the causes name a missing one twice, as the server's do."""
    for group in ("containers", "initContainers"):
        for place, container in enumerate(after.get(group) or []):
            if not container.get("image"):
                yield required(f"spec.{group}[{place}].image")


def _deadline(before: Object, after: Object) -> Iterator[FieldError]:
    path, old, new = (
        "spec.activeDeadlineSeconds",
        before.get("activeDeadlineSeconds"),
        after.get("activeDeadlineSeconds"),
    )
    if new is None:
        if old is not None:
            yield bad_value(path, None, "must not update from a positive integer to nil value")
    elif not 0 <= new <= _LONGEST_SECONDS:
        yield bad_value(path, new, f"must be between 0 and {_LONGEST_SECONDS}, inclusive")
    elif old is not None and old < new:
        yield bad_value(path, new, "must be less than or equal to previous value")


def _tolerations(before: Object, after: Object) -> Iterator[FieldError]:
    def lasting(toleration: Object) -> Object:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    kept = [lasting(toleration) for toleration in after.get("tolerations") or []]
    if any(lasting(toleration) not in kept for toleration in before.get("tolerations") or []):
        yield forbidden_field(
            "spec.tolerations", "existing toleration can not be modified except its tolerationSeconds"
        )


def _gates(before: Object, after: Object) -> Iterator[FieldError]:
    known = [gate["name"] for gate in before.get("schedulingGates") or []]
    for place, gate in enumerate(after.get("schedulingGates") or []):
        if gate["name"] not in known:
            detail = f"only deletion is allowed, but found new scheduling gate '{gate['name']}'"
            yield forbidden_field(f"spec.schedulingGates[{place}].name", detail)


def _selector_of_gated(before: Object, allowed: Object) -> list[FieldError]:
    """A pod that waits behind a gate may get a narrower node selector; `allowed` then counts as unchanged."""
    old, new = before.get("nodeSelector") or {}, allowed.pop("nodeSelector", None) or {}
    if old:
        allowed["nodeSelector"] = old
    if all(new.get(key) == value for key, value in old.items()):
        return []
    return [
        bad_value(
            "spec.nodeSelector", new, "only additions to spec.nodeSelector are allowed (no mutations or deletions)"
        )
    ]


def _as_recorded(spec: Object) -> Object:
    """A spec with the source that the recorded server adds to the volume of the token, so that lines have its numbers.

    That server is built from OpenShift's tree (the recordings' FORMAT.md); plain Kubernetes has 18 lines less there.
    """
    item = {"key": "service-ca.crt", "path": "service-ca.crt"}
    added = {"configMap": {"name": "openshift-service-ca.crt", "items": [item]}}
    spec = copy.deepcopy(spec)
    for volume in spec.get("volumes") or []:
        if volume["name"].startswith("kube-api-access-") and "projected" in volume:
            volume["projected"]["sources"].append(added)
    return spec
