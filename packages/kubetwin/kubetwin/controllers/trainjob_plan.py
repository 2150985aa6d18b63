"""The status of a TrainJob, as a function of the TrainJob, its JobSet and the time.

After Kubeflow Trainer 2.3.0 (github.com/kubeflow/trainer): pkg/controller/trainjob_controller.go, and `Status` of
pkg/runtime/framework/plugins/jobset/jobset.go.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from datetime import datetime, timedelta

from kubetwin.controllers.reconciler import Steps
from kubetwin.model import times
from kubetwin.model.conditions import find_condition, holds, true_condition
from kubetwin.model.errors import Object
from kubetwin.resources.trainjobs import CONTROLLER

COUNTS = ("ready", "succeeded", "failed", "active", "suspended")
DEADLINE = "DeadlineExceeded"

RUNTIMES = {
    "TrainingRuntime.trainer.kubeflow.org": "trainingruntimes.trainer.kubeflow.org",
    "ClusterTrainingRuntime.trainer.kubeflow.org": "clustertrainingruntimes.trainer.kubeflow.org",
}
"""Resources of the runtimes that a TrainJob may name, by kind and group."""


@dataclass(frozen=True)
class Plan(Steps):
    """The steps of one reconciliation: write the status, and end the JobSet of a job that takes too long."""

    delete_jobset: bool = False


def is_managed(trainjob: Object) -> bool:
    """Whether Trainer's own controller reconciles it."""
    return bool((trainjob.get("spec") or {}).get("managedBy", CONTROLLER) == CONTROLLER)


def runtime_kind(trainjob: Object) -> str:
    """Kind and group of the runtime that a TrainJob names, as Go prints them."""
    reference = (trainjob.get("spec") or {}).get("runtimeRef") or {}
    return ".".join(filter(None, (reference.get("kind"), reference.get("apiGroup"))))


def is_finished(status: Object) -> bool:
    return holds(status, "Complete") or holds(status, "Failed")


def begin(trainjob: Object) -> Object:
    """The status without the failure of an earlier reconciliation, which is found again if it still holds.

    So a failed TrainJob whose JobSet is gone counts as unfinished, and its JobSet is made once more. A deadline stays.
    """
    status: Object = copy.deepcopy(trainjob.get("status") or {})
    failed = find_condition(status, "Failed")
    if failed is not None and failed["reason"] != DEADLINE:
        status["conditions"].remove(failed)
    return status


def plan(trainjob: Object, jobset: Object | None, now: datetime) -> Plan:
    """The status to write.

    Args:
        trainjob: The TrainJob as stored.
        jobset: The JobSet of its name; None before it is made.
        now: The time, for conditions and the deadline.
    """
    status, spec = begin(trainjob), trainjob.get("spec") or {}
    kind = runtime_kind(trainjob)
    if kind not in RUNTIMES:
        _set(status, "Failed", "TrainingRuntimeNotSupported", f"unsupported runtime: {kind}", now)
    _note_suspension(status, suspended=bool(spec.get("suspend")), now=now)
    if jobset is not None and kind in RUNTIMES:
        _mirror(status, jobset.get("status") or {}, now)
    seconds = _seconds_left(trainjob, status, now)
    if seconds is not None and seconds <= 0:
        _set(status, "Failed", DEADLINE, "TrainJob exceeded its active deadline", now)
        return Plan(_without_nothing(status), delete_jobset=True)
    return Plan(_without_nothing(status), requeue_seconds=seconds)


def _without_nothing(status: Object) -> Object:
    return {key: value for key, value in status.items() if value}


def _set(status: Object, kind: str, reason: str, message: str, now: datetime, *, value: str = "True") -> None:
    condition = {"type": kind, "status": value, "reason": reason, "message": message}
    _put(status, {**condition, "lastTransitionTime": times.seconds(now)})


def _put(status: Object, new: Object) -> None:
    """Set a condition in its place; its time changes with its status (apimachinery, `meta.SetStatusCondition`)."""
    conditions = status.setdefault("conditions", [])
    old = find_condition(status, new["type"])
    if old is None:
        conditions.append(new)
    elif old["status"] == new["status"]:
        old.update({**new, "lastTransitionTime": old["lastTransitionTime"]})
    else:
        old.update(new)


def _note_suspension(status: Object, *, suspended: bool, now: datetime) -> None:
    if suspended:
        _set(status, "Suspended", "Suspended", "TrainJob is suspended", now)
    elif holds(status, "Suspended"):
        _set(status, "Suspended", "Resumed", "TrainJob is resumed", now, value="False")


def _mirror(status: Object, jobset: Object, now: datetime) -> None:
    """Take over the end of the JobSet, with its reason, message and time, and the numbers of its Jobs."""
    for theirs, ours in (("Completed", "Complete"), ("Failed", "Failed")):
        condition = true_condition(jobset, theirs)
        if condition is not None:
            _put(status, {"lastTransitionTime": times.seconds(now), **condition, "type": ours})
    status["jobsStatus"] = [
        {"name": each["name"], **{count: int(each.get(count) or 0) for count in COUNTS}}
        for each in jobset.get("replicatedJobsStatus") or []
    ]


def _seconds_left(trainjob: Object, status: Object, now: datetime) -> float | None:
    """Time until the deadline, which starts again when the job is resumed; None without one."""
    spec = trainjob.get("spec") or {}
    seconds = spec.get("activeDeadlineSeconds")
    if not seconds or is_finished(status) or spec.get("suspend"):
        return None
    suspended = find_condition(status, "Suspended")
    since = trainjob["metadata"]["creationTimestamp"]
    if suspended is not None and suspended["status"] == "False":
        since = suspended["lastTransitionTime"]
    return (times.parse(since) + timedelta(seconds=seconds) - now).total_seconds()
