"""The conditions of a PyTorchJob: which exclude each other and which stay, after pkg/util/status.go."""

from __future__ import annotations

from datetime import datetime

from kubetwin.model import times
from kubetwin.model.conditions import find_condition, holds
from kubetwin.model.errors import Object

_EXCLUDES = {"Running": "Restarting", "Restarting": "Running"}


def set_condition(
    status: Object, kind: str, reason: str, message: str, now: datetime, *, status_value: str = "True"
) -> bool:
    """Set a condition; whether anything changed. A failed job keeps the conditions that it has."""
    old = find_condition(status, kind)
    if holds(status, "Failed") or (old and (old["status"], old["reason"]) == (status_value, reason)):
        return False
    moment = times.seconds(now)
    if kind in ("Succeeded", "Failed"):
        stop_running(status)
    new = {
        "type": kind,
        "status": status_value,
        "reason": reason,
        "message": message,
        "lastUpdateTime": moment,
        "lastTransitionTime": old["lastTransitionTime"] if old and old["status"] == status_value else moment,
    }
    kept = [c for c in status["conditions"] if c["type"] not in (kind, _EXCLUDES.get(kind))]
    status["conditions"] = [*kept, new]
    return True


def stop_running(status: Object) -> None:
    """Running stays in the list, as False."""
    for condition in status["conditions"]:
        if condition["type"] == "Running":
            condition["status"] = "False"
