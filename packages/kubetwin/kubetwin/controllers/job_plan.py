"""The next steps of the Job controller, as a function of the Job, its pods and the time.

Follows kubernetes/pkg/controller/job: pods are counted once, when their tracking finalizer is taken off; a Job that
is decided first carries SuccessCriteriaMet or FailureTarget, and becomes Complete or Failed when its pods have ended.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kubetwin.controllers.job_failures import (
    Failure,
    PolicyVerdict,
    backoff_until,
    count_failures_by_index,
    is_failed,
    judge,
)
from kubetwin.controllers.job_indexes import format_indexes, index_of, parse_indexes
from kubetwin.controllers.reconciler import Event, Steps, after_the_end
from kubetwin.model import times
from kubetwin.model.conditions import holds, true_condition
from kubetwin.model.errors import Object

TRACKING_FINALIZER = "batch.kubernetes.io/job-tracking"
CREATE_BATCH = 100
"""Pods made in one reconciliation; the rest follows in the next."""


@dataclass(frozen=True)
class Plan(Steps):
    """The steps of one reconciliation, in this order: create, delete, release, write the status and the events."""

    create: tuple[int | None, ...] = ()
    """Completion index of each new pod (None in a Job without indexes)."""
    delete: tuple[str, ...] = ()
    release: tuple[str, ...] = ()
    """Pods that are counted or that the Job no longer owns: their finalizer is removed."""


def has_finalizer(pod: Object) -> bool:
    return TRACKING_FINALIZER in (pod["metadata"].get("finalizers") or [])


def is_terminal(pod: Object) -> bool:
    return pod["status"].get("phase") in ("Succeeded", "Failed")


def is_terminating(pod: Object) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp")) and not is_terminal(pod)


def is_active(pod: Object) -> bool:
    return not pod["metadata"].get("deletionTimestamp") and not is_terminal(pod)


def _is_ready(pod: Object) -> bool:
    return holds(pod["status"], "Ready")


def _vanished(pod: Object) -> bool:
    """Deleted before it had a node: no kubelet will ever report its end."""
    return is_terminating(pod) and not pod["spec"].get("nodeName")


def plan(job: Object, pods: Sequence[Object], now: datetime) -> Plan:
    """The next steps for one Job.

    Args:
        job: The Job as stored.
        pods: All pods that it controls.
        now: The time, for deadlines, back-off and time to live.
    """
    end = true_condition(job["status"], "Complete") or true_condition(job["status"], "Failed")
    if end is not None:
        return _finished(job, pods, end, now)
    if job["metadata"].get("deletionTimestamp"):
        leaving = (pod for pod in pods if not is_active(pod))
        return Plan(job["status"], release=_names(pod for pod in leaving if has_finalizer(pod)))
    return _Planner(job, pods, now).plan()


def _names(pods: Iterable[Object]) -> tuple[str, ...]:
    return tuple(pod["metadata"]["name"] for pod in pods)


def _finished(job: Object, pods: Sequence[Object], end: Object, now: datetime) -> Plan:
    leaving = bool(job["metadata"].get("deletionTimestamp"))
    lifetime = None if leaving else job["spec"].get("ttlSecondsAfterFinished")
    release = _names(pod for pod in pods if has_finalizer(pod))
    return Plan(job["status"], release=release, **after_the_end(end["lastTransitionTime"], lifetime, now))


@dataclass
class _Planner:
    job: Object
    pods: Sequence[Object]
    now: datetime
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spec: Object = self.job["spec"]
        self.status: Object = {"conditions": [], **self.job["status"]}
        self.indexed = self.spec["completionMode"] == "Indexed"
        self.completions: int | None = self.spec.get("completions")
        self.active = [pod for pod in self.pods if is_active(pod)]
        self.completed = parse_indexes(self.status.get("completedIndexes", ""))
        self.failed_indexes = parse_indexes(self.status.get("failedIndexes", ""))
        self.succeeded = int(self.status.get("succeeded", 0))
        self.failed = int(self.status.get("failed", 0))
        self.released: list[Object] = []
        self.verdict = PolicyVerdict()

    def plan(self) -> Plan:
        self._suspend_or_start()
        self._count_ended_pods()
        if holds(self.status, "SuccessCriteriaMet"):
            return self._wind_up("Complete")
        if holds(self.status, "FailureTarget"):
            return self._wind_up("Failed")
        failure = self._failure()
        if failure is not None:
            self._set("FailureTarget", failure.reason, failure.message)
            return self._result(delete=self.active, requeue=0.0)
        rule = self._matched_success_rule()
        if rule is not None:
            self._set("SuccessCriteriaMet", "SuccessPolicy", f"Matched rules at index {rule}")
            return self._result(delete=self.active, requeue=0.0)
        if self._succeeded():
            self._set("SuccessCriteriaMet", "CompletionsReached", "Reached expected number of succeeded pods")
            return self._result(delete=self.active, requeue=0.0)
        if self.spec["suspend"]:
            # They neither failed nor will they be counted: the finalizer is removed together with the pod.
            self.released += [pod for pod in self.active if has_finalizer(pod)]
            return self._result(delete=self.active)
        return self._keep_running()

    def _suspend_or_start(self) -> None:
        was = holds(self.status, "Suspended")
        if self.spec["suspend"]:
            self.status.pop("startTime", None)
            if not was:
                self._set("Suspended", "JobSuspended", "Job suspended")
                self.events.append(("Normal", "Suspended", "Job suspended"))
        else:
            if was:
                self._set("Suspended", "JobResumed", "Job resumed", status="False")
                self.events.append(("Normal", "Resumed", "Job resumed"))
            self.status.setdefault("startTime", times.seconds(self.now))

    def _count_ended_pods(self) -> None:
        """Count the pods that have ended since the last time, and release them."""
        decided = holds(self.status, "SuccessCriteriaMet")
        ended = [
            pod
            for pod in self.pods
            if has_finalizer(pod) and (is_terminal(pod) or _vanished(pod) or is_failed(self.job, pod))
        ]
        for pod in ended:
            self.released.append(pod)
            index = index_of(pod)
            if self.indexed and (index is None or index >= (self.completions or 0)):
                continue
            if pod["status"].get("phase") == "Succeeded":
                self.succeeded += 1
                if index is not None:
                    self.completed.add(index)
            elif not decided and not (self.spec["suspend"] and pod["metadata"].get("deletionTimestamp")):
                verdict = judge(self.job, pod)
                self.verdict = self.verdict.or_else(verdict)
                self.failed += verdict.counts
                if verdict.fails_index and index is not None:
                    self.failed_indexes.add(index)
        if self.indexed:
            self.succeeded = len(self.completed)
        self._fail_exhausted_indexes()

    def _fail_exhausted_indexes(self) -> None:
        limit = self.spec.get("backoffLimitPerIndex")
        if limit is not None:
            failures = count_failures_by_index(self.job, self.pods)
            self.failed_indexes |= {index for index, count in failures.items() if count > limit}
            self.failed_indexes -= self.completed

    def _failure(self) -> Failure | None:
        """The Job's failure; None if it has not failed."""
        if self.verdict.fails_job:
            return Failure("PodFailurePolicy", self.verdict.message)
        if self.failed > self.spec["backoffLimit"] or self._restarted_too_often():
            return Failure("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        left = self._seconds_to_deadline()
        if left is not None and left <= 0:
            return Failure("DeadlineExceeded", "Job was active longer than specified deadline")
        most = self.spec.get("maxFailedIndexes")
        if most is not None and len(self.failed_indexes) > most:
            message = "Job has exceeded the specified maximal number of failed indexes"
            return Failure("MaxFailedIndexesExceeded", message)
        if self.failed_indexes and len(self.failed_indexes | self.completed) >= (self.completions or 0):
            return Failure("FailedIndexes", "Job has failed indexes")
        return None

    def _restarted_too_often(self) -> bool:
        if self.spec["template"]["spec"]["restartPolicy"] != "OnFailure":
            return False
        restarts = sum(
            status.get("restartCount", 0)
            for pod in self.active
            for status in pod["status"].get("containerStatuses") or []
        )
        limit = self.spec["backoffLimit"]
        return bool(restarts > 0 if limit == 0 else restarts >= limit)

    def _seconds_to_deadline(self) -> float | None:
        seconds = None if self.spec["suspend"] else self.spec.get("activeDeadlineSeconds")
        return times.seconds_left(self.status.get("startTime"), seconds, self.now)

    def _succeeded(self) -> bool:
        if self.completions is None:
            return self.succeeded > 0 and not self.active
        return self.succeeded >= self.completions and not (self.completions == 0 and self.active)

    def _matched_success_rule(self) -> int | None:
        """Place of the first rule of the success policy that is met; None if none is."""
        for place, rule in enumerate((self.spec.get("successPolicy") or {}).get("rules") or []):
            named = rule.get("succeededIndexes")
            counted = self.completed if named is None else self.completed & parse_indexes(named)
            needed = rule.get("succeededCount", len(parse_indexes(named or "")))
            if len(counted) >= needed:
                return place
        return None

    def _keep_running(self) -> Plan:
        wanted = self._wanted_active()
        if len(self.active) > wanted:
            surplus = sorted(self.active, key=lambda pod: (index_of(pod) or 0, _is_ready(pod)))[wanted:]
            self.released += [pod for pod in surplus if has_finalizer(pod)]
            return self._result(delete=surplus, requeue=self._seconds_to_deadline())
        missing = wanted - len(self.active)
        if self.spec["podReplacementPolicy"] == "Failed":
            missing -= sum(is_terminating(pod) for pod in self.pods)
        if missing <= 0:
            return self._result(requeue=self._seconds_to_deadline())
        wait = (backoff_until(self.job, self.pods, self.now) - self.now).total_seconds()
        if wait > 0 and not self.verdict.ignored:
            return self._result(requeue=min(wait, self._seconds_to_deadline() or wait))
        batch = min(missing, CREATE_BATCH)
        create = self._free_indexes(batch) if self.indexed else (None,) * batch
        return self._result(create=create, requeue=0.0 if missing > batch else self._seconds_to_deadline())

    def _wanted_active(self) -> int:
        parallelism = int(self.spec["parallelism"])
        if self.completions is None:
            return len(self.active) if self.succeeded else parallelism
        done = len(self.completed | self.failed_indexes) if self.indexed else self.succeeded
        return min(parallelism, max(0, self.completions - done))

    def _free_indexes(self, count: int) -> tuple[int, ...]:
        holders = (pod for pod in self.pods if is_active(pod) or (self._waits_for_end and is_terminating(pod)))
        taken = self.completed | self.failed_indexes | {index_of(pod) for pod in holders}
        free = (index for index in range(self.completions or 0) if index not in taken)
        return tuple(index for _, index in zip(range(count), free, strict=False))

    @property
    def _waits_for_end(self) -> bool:
        return bool(self.spec["podReplacementPolicy"] == "Failed")

    def _wind_up(self, end: str) -> Plan:
        """The Job is decided: wait until no pod is left running, then give it its last condition."""
        if self.active:
            return self._result(delete=self.active)
        if any(is_terminating(pod) and not _vanished(pod) for pod in self.pods):
            return self._result()
        interim = "SuccessCriteriaMet" if end == "Complete" else "FailureTarget"
        reason = true_condition(self.status, interim) or {}
        self._set(end, reason.get("reason", ""), reason.get("message", ""))
        if end == "Complete":
            self.status["completionTime"] = times.seconds(self.now)
            self.events.append(("Normal", "Completed", "Job completed"))
        else:
            self.events.append(("Warning", reason.get("reason", ""), reason.get("message", "")))
        return self._result(requeue=0.0)

    def _set(self, kind: str, reason: str, message: str, *, status: str = "True") -> None:
        now = times.seconds(self.now)
        new = {
            "type": kind,
            "status": status,
            "lastProbeTime": now,
            "lastTransitionTime": now,
            "reason": reason,
            "message": message,
        }
        self.status["conditions"] = [c for c in self.status["conditions"] if c["type"] != kind] + [new]

    def _result(
        self, create: tuple[int | None, ...] = (), delete: Sequence[Object] = (), requeue: float | None = None
    ) -> Plan:
        leaving = {pod["metadata"]["name"] for pod in delete}
        staying = [pod for pod in self.active if pod["metadata"]["name"] not in leaving]
        bound = [pod for pod in delete if pod["spec"].get("nodeName")]
        terminating = sum(is_terminating(pod) and not _vanished(pod) for pod in self.pods) + len(bound)
        counters = {
            "active": len(staying) + len(create),
            "succeeded": self.succeeded,
            "failed": self.failed,
            "completedIndexes": format_indexes(self.completed),
            "failedIndexes": format_indexes(self.failed_indexes),
            "conditions": self.status["conditions"],
        }
        status = {key: value for key, value in self.status.items() if key not in counters}
        status |= {key: value for key, value in counters.items() if value}
        status |= {"ready": sum(map(_is_ready, staying)), "terminating": terminating, "uncountedTerminatedPods": {}}
        released, events = _names(self.released), tuple(self.events)
        return Plan(status, create, _names(delete), released, events=events, requeue_seconds=requeue)
