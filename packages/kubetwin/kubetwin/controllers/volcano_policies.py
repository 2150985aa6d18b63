"""Events of a Volcano Job, and the actions of its policies. Pure.

After volcano-sh/volcano 1.15, pkg/controllers/job: job_controller_handler.go and applyPolicies.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

from kubetwin.controllers.volcano_pods import TASK_KEY, VERSION_KEY, tasks_of
from kubetwin.model.errors import Object


class Event(StrEnum):
    """Events that policies can name."""

    OUT_OF_SYNC = "OutOfSync"
    POD_PENDING = "PodPending"
    POD_RUNNING = "PodRunning"
    POD_FAILED = "PodFailed"
    POD_EVICTED = "PodEvicted"
    TASK_COMPLETED = "TaskCompleted"


class Action(StrEnum):
    """Actions of policies."""

    SYNC = "SyncJob"
    ABORT = "AbortJob"
    RESTART = "RestartJob"
    RESTART_TASK = "RestartTask"
    RESTART_POD = "RestartPod"
    TERMINATE = "TerminateJob"
    COMPLETE = "CompleteJob"
    RESUME = "ResumeJob"


@dataclass(frozen=True)
class Request:
    """Something happened to a Job or to one of its pods."""

    event: Event = Event.OUT_OF_SYNC
    task: str = ""
    pod: str = ""
    exit_code: int = 0
    version: int | None = None
    """Version of the Job that the pod belongs to."""


def observe(job: Object, pod: Object, previous: Object | None, pods: list[Object], *, deleted: bool) -> Request:
    """The event in a change of a pod.

    Args:
        job: The pod's Job.
        pod: The pod as it is now, or as it was last.
        previous: The pod before the change.
        pods: All pods of the Job, with this change in them.
        deleted: Whether the pod was deleted.
    """
    annotations, task = pod["metadata"].get("annotations") or {}, pod["metadata"]["labels"].get(TASK_KEY, "")
    phase = pod["status"].get("phase")
    before = previous["status"].get("phase") if previous is not None else None
    event, exit_code = Event.OUT_OF_SYNC, 0
    if deleted:
        event = Event.POD_EVICTED
    elif phase != before:
        event, exit_code = _transition(job, pod, task, pods)
    version = annotations.get(VERSION_KEY, "")
    return Request(event, task, pod["metadata"]["name"], exit_code, int(version) if version.isdigit() else None)


def _transition(job: Object, pod: Object, task: str, pods: list[Object]) -> tuple[Event, int]:
    phase = pod["status"].get("phase")
    if phase == "Failed":
        return Event.POD_FAILED, _exit_code(pod)
    if phase == "Succeeded":
        wanted = next((int(t["replicas"]) for t in tasks_of(job) if t["name"] == task), 0)
        peers = [p for p in pods if p["metadata"]["labels"].get(TASK_KEY) == task]
        done = sum(p["status"].get("phase") == "Succeeded" for p in peers)
        return (Event.TASK_COMPLETED if done >= wanted else Event.OUT_OF_SYNC), 0
    if phase == "Running":
        return Event.POD_RUNNING, 0
    return (Event.POD_PENDING if phase == "Pending" else Event.OUT_OF_SYNC), 0


def _exit_code(pod: Object) -> int:
    statuses = pod["status"].get("containerStatuses") or []
    codes = [((s.get("state") or {}).get("terminated") or {}).get("exitCode", 0) for s in statuses]
    return next((int(code) for code in codes if code), 0)


def action_for(job: Object, request: Request) -> Action:
    """The action for an event: the task's policies override the job's; without one, the Job is only synchronised."""
    if request.event is Event.OUT_OF_SYNC:
        return Action.SYNC
    if request.version is not None and request.version < (job.get("status") or {}).get("version", 0):
        return Action.SYNC  # of an attempt that is over
    for policy in _policies(job, request.task):
        events = {*(policy.get("events") or []), *([policy["event"]] if policy.get("event") else [])}
        named = request.event in events or "*" in events
        coded = bool(policy.get("exitCode")) and policy["exitCode"] == request.exit_code
        if (named or coded) and policy.get("action") in list(Action):
            return Action(policy["action"])
    return Action.SYNC


def _policies(job: Object, task: str) -> Iterator[Object]:
    for spec in tasks_of(job):
        if spec["name"] == task:
            yield from spec.get("policies") or []
    yield from job["spec"].get("policies") or []
