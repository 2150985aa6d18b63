"""Faults of a ResourceQuota that the server refuses (pkg/apis/core/validation: ValidateResourceQuotaSpec)."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import AT_LEAST_ZERO, FieldError, Object, bad_value
from kubetwin.model.names import follows, qualified_name
from kubetwin.model.quantity import parse_quantity

_AMOUNTS = ("cpu", "memory", "ephemeral-storage")
_COUNTED = (
    "pods",
    "resourcequotas",
    "services",
    "replicationcontrollers",
    "secrets",
    "configmaps",
    "persistentvolumeclaims",
    "services.nodeports",
    "services.loadbalancers",
)
_STANDARD = (
    *_AMOUNTS,
    *(f"{kind}.{name}" for kind in ("requests", "limits") for name in _AMOUNTS),
    "requests.storage",
    *_COUNTED,
)
_HUGE_PAGES = ("hugepages-", "requests.hugepages-")
_SCOPES = (
    "Terminating",
    "NotTerminating",
    "BestEffort",
    "NotBestEffort",
    "PriorityClass",
    "CrossNamespacePodAffinity",
    "VolumeAttributesClass",
)


def validate_quota(quota: Object) -> list[FieldError]:
    """Faults of the names, the amounts and the scopes."""
    spec = quota["spec"]
    faults = [fault for name, amount in (spec.get("hard") or {}).items() for fault in _limit_faults(name, amount)]
    scopes = spec.get("scopes") or []
    if any(scope not in _SCOPES for scope in scopes):
        faults.append(bad_value("spec.scopes", scopes, "unsupported scope"))
    return faults


def validate_quota_update(new: Object, old: Object) -> list[FieldError]:
    before, after = old["spec"].get("scopes") or [], new["spec"].get("scopes") or []
    return [bad_value("spec.scopes", after, "field is immutable")] if set(before) != set(after) else []


def _limit_faults(name: str, amount: str) -> Iterator[FieldError]:
    path = f"spec.hard[{name}]"
    yield from follows(qualified_name, path, name)
    if "/" not in name and name not in _STANDARD and not name.startswith(_HUGE_PAGES):
        yield bad_value(path, name, "must be a standard resource type or fully qualified")
        yield bad_value(path, name, "must be a standard resource for quota")
    number = parse_quantity(amount)
    if number < 0:
        yield bad_value(path, amount, AT_LEAST_ZERO)
    if (name in _COUNTED or name.startswith("count/")) and number.denominator != 1:
        yield bad_value(path, amount, "must be an integer")
