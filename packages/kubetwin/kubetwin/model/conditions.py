"""Conditions in the status of an object."""

from __future__ import annotations

from kubetwin.model import times
from kubetwin.model.errors import Object


def find_condition(status: Object | None, kind: str) -> Object | None:
    """The condition of this type."""
    return next((c for c in (status or {}).get("conditions") or [] if c["type"] == kind), None)


def true_condition(status: Object | None, kind: str) -> Object | None:
    """The condition of this type when it is True."""
    found = find_condition(status, kind)
    return found if found is not None and found["status"] == "True" else None


def holds(status: Object | None, kind: str) -> bool:
    """Whether the condition of this type is True."""
    return true_condition(status, kind) is not None


def mark_disrupted(pod: Object, reason: str, message: str) -> None:
    """Say on a pod that it ends for the cluster's sake, not for its own."""
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason, "message": message}
    set_condition(pod["status"], condition)


def set_condition(status: Object, new: Object) -> None:
    """Add a condition or replace the one of its type; the time of transition stays while the status does."""
    old = find_condition(status, new["type"])
    new.setdefault("lastProbeTime", None)
    new["lastTransitionTime"] = times.seconds(times.now())
    if old is not None and old["status"] == new["status"]:
        new["lastTransitionTime"] = old["lastTransitionTime"]
    status["conditions"] = [*(c for c in status.get("conditions") or [] if c["type"] != new["type"]), new]
