"""The next steps of the training operator, as a function of a PyTorchJob, its objects and the time.

After kubeflow/training-operator 1.9: pkg/controller.v1/common/job.go and pytorch/pytorchjob_controller.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kubetwin.controllers.pytorch_conditions import set_condition, stop_running
from kubetwin.controllers.pytorch_pods import (
    MASTER,
    TYPE_LABEL,
    Replica,
    base_labels,
    count_of,
    replica_specs,
    replicas_of,
    restarts_of,
)
from kubetwin.controllers.reconciler import Event, Steps, after_the_end
from kubetwin.model import times
from kubetwin.model.conditions import holds
from kubetwin.model.errors import Object

RETRYABLE_EXIT_CODE = 128
"""Lowest exit code that stands for a signal: under ExitCode the replica is created again."""


@dataclass(frozen=True)
class Plan(Steps):
    """The steps of one reconciliation: delete, create, write the status and the events."""

    create: tuple[Replica, ...] = ()
    delete_pods: tuple[str, ...] = ()
    delete_services: tuple[str, ...] = ()
    remade: int = 0
    """Failed pods that this plan replaces."""


def plan(job: Object, pods: Sequence[Object], services: Sequence[str], now: datetime, *, remade: int = 0) -> Plan:
    """The next steps for one PyTorchJob.

    Args:
        job: The job as stored.
        pods: All pods that it controls.
        services: Names of the Services that it controls.
        now: The time, for deadlines and time to live.
        remade: Failed pods that were replaced so far; it is nowhere in the status.
    """
    return _Planner(job, pods, services, now, remade).plan()


def is_finished(status: Object) -> bool:
    return holds(status, "Succeeded") or holds(status, "Failed")


def exit_code(pod: Object) -> int:
    """The exit code of the container `pytorch`, which is the only one that the operator looks at; 0 before its end
    (training-operator pkg/core/pod.go, `GetDefaultContainerName`)."""
    statuses = [s for s in pod["status"].get("containerStatuses") or [] if s["name"] == "pytorch"]
    codes = [((s.get("state") or {}).get("terminated") or {}).get("exitCode", 0) for s in statuses]
    return next((int(code) for code in codes if code), 0)


@dataclass
class _Planner:
    job: Object
    pods: Sequence[Object]
    services: Sequence[str]
    now: datetime
    remade: int
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.name = self.job["metadata"]["name"]
        self.policy: Object = self.job["spec"].get("runPolicy") or {}
        self.specs = replica_specs(self.job)
        self.before = self.job.get("status") or {}
        self.status: Object = {**self.before, "conditions": [dict(c) for c in self.before.get("conditions") or []]}

    def plan(self) -> Plan:
        if is_finished(self.before):
            return self._finished()
        if not self.status["conditions"]:
            self._set("Created", "is created.")
        if self.policy.get("suspend"):
            return self._suspended()
        self._start()
        self.status["replicaStatuses"] = {kind: self._counts(kind) for kind in self.specs}
        reason = self._limit_reached()
        if reason:
            self._fail(f"Job {self.name} has failed because it {reason}")
            return self._result(delete_pods=self._to_clean())
        return self._keep_running()

    def _start(self) -> None:
        if holds(self.status, "Suspended"):
            self._set("Suspended", "is resumed.", status="False", reason="PyTorchJobResumed")
            self.status.pop("startTime", None)
        self.status.setdefault("startTime", times.seconds(self.now))

    def _suspended(self) -> Plan:
        self._set("Suspended", "is suspended.")
        stop_running(self.status)
        for counts in (self.status.get("replicaStatuses") or {}).values():
            counts.pop("active", None)
        names = tuple(pod["metadata"]["name"] for pod in self.pods)
        return self._result(delete_pods=names, delete_services=tuple(self.services))

    def _keep_running(self) -> Plan:
        lost = [pod for pod in self.pods if self._is_lost(pod)]
        unretryable = next((pod for pod in self.pods if self._is_final(pod)), None)
        for kind in self.specs:
            self._judge(kind, lost, unretryable)
        wanted = replicas_of(self.job)
        names = {replica.name for replica in wanted}
        present = {pod["metadata"]["name"] for pod in self.pods}
        surplus = tuple(name for name in sorted(present - names))
        if is_finished(self.status):
            return self._result(requeue=0.0)
        create = tuple(r for r in wanted if r.name not in present or r.name not in self.services)
        gone = tuple(pod["metadata"]["name"] for pod in lost if not pod["metadata"].get("deletionTimestamp"))
        idle = tuple(name for name in self.services if name not in names)
        return self._result(create, (*gone, *surplus), idle, remade=len(gone), requeue=self._seconds_to_deadline())

    def _judge(self, kind: str, lost: Sequence[Object], unretryable: Object | None) -> None:
        """Effect of the state of one replica type on the job."""
        if is_finished(self.status):
            return
        counts, spec = self.status["replicaStatuses"][kind], self.specs[kind]
        active, succeeded = counts.get("active", 0), counts.get("succeeded", 0)
        leading = kind == (MASTER if MASTER in self.specs else "Worker")
        place = "" if MASTER in self.specs else f"{self.job['metadata']['namespace']}/"
        if leading and (succeeded >= count_of(spec) or (succeeded and self._is_elastic)):
            self._set("Succeeded", "is successfully completed." if not place else "successfully completed.", place)
            self.status["completionTime"] = times.seconds(self.now)
            return
        if leading and active:
            self._set("Running", "is running.", place)
        failed = counts.get("failed", 0)
        if not failed or count_of(spec) <= succeeded + active:
            return
        if unretryable is not None and _type_of(unretryable) == kind.lower():
            self._fail(f'job "{self.name}" is failing because "{kind}" replica(s) failed.')
        elif any(_type_of(pod) == kind.lower() for pod in lost):
            self._set("Restarting", f"is restarting because {failed} {kind} replica(s) failed.")
        else:
            self._fail(f"PyTorchJob {self.name} is failed because {failed} {kind} replica(s) failed.")

    def _is_lost(self, pod: Object) -> bool:
        """Whether the pod failed and is created again."""
        policy = self._restart_policy(pod)
        if pod["status"].get("phase") != "Failed":
            return False
        return policy in ("OnFailure", "Always") or (policy == "ExitCode" and exit_code(pod) >= RETRYABLE_EXIT_CODE)

    def _is_final(self, pod: Object) -> bool:
        failed = pod["status"].get("phase") == "Failed"
        return failed and self._restart_policy(pod) == "ExitCode" and exit_code(pod) < RETRYABLE_EXIT_CODE

    def _restart_policy(self, pod: Object) -> str:
        spec = next((s for kind, s in self.specs.items() if kind.lower() == _type_of(pod)), {})
        return restarts_of(spec)

    @property
    def _is_elastic(self) -> bool:
        return "elasticPolicy" in self.job["spec"]

    def _counts(self, kind: str) -> Object:
        phases = [pod["status"].get("phase") for pod in self.pods if _type_of(pod) == kind.lower()]
        counts = {
            "active": phases.count("Running"),
            "succeeded": phases.count("Succeeded"),
            "failed": phases.count("Failed"),
        }
        selector = ",".join(f"{key}={value}" for key, value in sorted(base_labels(self.job, kind).items()))
        return {**{key: count for key, count in counts.items() if count}, "selector": selector}

    def _limit_reached(self) -> str:
        left = self._seconds_to_deadline()
        if left is not None and left <= 0:
            return "was active longer than specified deadline"
        limit = self.policy.get("backoffLimit")
        if limit is None:
            return ""
        running = [pod for pod in self.pods if pod["status"].get("phase") == "Running"]
        counted = [pod for pod in running if self._restart_policy(pod) != "Never"]
        restarts = sum(c.get("restartCount", 0) for p in counted for c in p["status"].get("containerStatuses") or [])
        again = any(map(self._is_lost, self.pods)) and self.remade + 1 > limit
        exceeded = restarts >= limit if limit else restarts > 0
        return "has reached the specified backoff limit" if exceeded or again else ""

    def _seconds_to_deadline(self) -> float | None:
        return times.seconds_left(self.status.get("startTime"), self.policy.get("activeDeadlineSeconds"), self.now)

    def _finished(self) -> Plan:
        cleaned = self._to_clean()
        services = [name for name in self.services if name in cleaned or self._cleaning == "All"]
        if self._cleaning in ("All", "Running") and holds(self.before, "Succeeded"):
            self.status["replicaStatuses"] = {
                kind: _all_succeeded(counts) for kind, counts in (self.before.get("replicaStatuses") or {}).items()
            }
        end, lifetime = self.before.get("completionTime"), self.policy.get("ttlSecondsAfterFinished")
        ended = after_the_end(end, lifetime, self.now)
        return Plan(self.status, delete_pods=cleaned, delete_services=tuple(services), **ended)

    @property
    def _cleaning(self) -> str:
        return str(self.policy.get("cleanPodPolicy") or "None")

    def _to_clean(self) -> tuple[str, ...]:
        """Pods that go when the job has ended."""
        phases = {"All": ("Running", "Pending", "Succeeded", "Failed"), "Running": ("Running", "Pending")}
        chosen = phases.get(self._cleaning, ())
        return tuple(pod["metadata"]["name"] for pod in self.pods if pod["status"].get("phase") in chosen)

    def _fail(self, message: str) -> None:
        set_condition(self.status, "Failed", "PyTorchJobFailed", message, self.now)
        self.status["completionTime"] = times.seconds(self.now)
        self.events.append(("Warning", "PyTorchJobFailed", message))

    def _set(self, kind: str, what: str, place: str = "", *, status: str = "True", reason: str = "") -> None:
        message = f"PyTorchJob {place}{self.name} {what}"
        reason = reason or f"PyTorchJob{kind}"
        if set_condition(self.status, kind, reason, message, self.now, status_value=status):
            self.events.append(("Warning" if kind == "Restarting" else "Normal", reason, message))

    def _result(
        self,
        create: tuple[Replica, ...] = (),
        delete_pods: tuple[str, ...] = (),
        delete_services: tuple[str, ...] = (),
        remade: int = 0,
        requeue: float | None = None,
    ) -> Plan:
        events = tuple(self.events)
        return Plan(self.status, create, delete_pods, delete_services, remade, events=events, requeue_seconds=requeue)


def _type_of(pod: Object) -> str:
    return str((pod["metadata"].get("labels") or {}).get(TYPE_LABEL, ""))


def _all_succeeded(counts: Object) -> Object:
    total = counts.get("active", 0) + counts.get("succeeded", 0)
    rest = {key: value for key, value in counts.items() if key != "active"}
    return {**rest, "succeeded": total} if total else rest
