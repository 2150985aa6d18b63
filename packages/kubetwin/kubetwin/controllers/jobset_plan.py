"""The next steps of the JobSet controller, as a function of the JobSet, its child Jobs and the time.

After sigs.k8s.io/jobset 0.12, pkg/controllers: jobset_controller.go, success_policy.go, startup_policy.go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kubetwin.controllers.jobset_failures import judge
from kubetwin.controllers.jobset_jobs import (
    REPLICATED_JOB,
    RESTART_ATTEMPT,
    Child,
    children_of,
    replicas_of,
    replicated_jobs,
)
from kubetwin.controllers.reconciler import Event, Steps, after_the_end
from kubetwin.model import times
from kubetwin.model.conditions import find_condition, holds, true_condition
from kubetwin.model.errors import Object

RESTARTING = "RestartingJobSet"


@dataclass(frozen=True)
class Plan(Steps):
    """The steps of one reconciliation: delete, create, suspend or resume, write the status and the events."""

    create: tuple[Child, ...] = ()
    delete: tuple[str, ...] = ()
    suspend: tuple[str, ...] = ()
    resume: tuple[str, ...] = ()

    @property
    def restarts(self) -> int:
        return int(self.status.get("restarts", 0))


def plan(jobset: Object, jobs: Sequence[Object], now: datetime) -> Plan:
    """The next steps for one JobSet.

    Args:
        jobset: The JobSet as stored.
        jobs: All Jobs that it controls, of this attempt and of earlier ones.
        now: The time, for conditions and time to live.
    """
    return _Planner(jobset, jobs, now).plan()


def is_finished(status: Object) -> bool:
    return holds(status, "Completed") or holds(status, "Failed")


def _names(jobs: Sequence[Object]) -> tuple[str, ...]:
    return tuple(job["metadata"]["name"] for job in jobs)


def is_ready(job: Object) -> bool:
    """Whether all pods of a Job are ready or done."""
    spec, status = job["spec"], job.get("status") or {}
    wanted = min(spec.get("parallelism", 1), spec.get("completions") or spec.get("parallelism", 1))
    return bool(status.get("succeeded", 0) + status.get("ready", 0) >= wanted)


@dataclass
class _Planner:
    jobset: Object
    jobs: Sequence[Object]
    now: datetime
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spec: Object = self.jobset["spec"]
        self.before: Object = self.jobset.get("status") or {}
        self.status: Object = {"restarts": 0, **self.before}
        self.status["conditions"] = [dict(c) for c in self.before.get("conditions") or []]
        attempt = str(self.status["restarts"])
        current = [job for job in self.jobs if job["metadata"]["labels"].get(RESTART_ATTEMPT) == attempt]
        self.previous = [job for job in self.jobs if job not in current]
        self.failed = [job for job in current if holds(job.get("status"), "Failed")]
        self.completed = [job for job in current if holds(job.get("status"), "Complete")]
        self.active = [job for job in current if job not in self.failed and job not in self.completed]
        self.current = current

    def plan(self) -> Plan:
        self.status["replicatedJobsStatus"] = [self._counts(replicated) for replicated in replicated_jobs(self.jobset)]
        if is_finished(self.before):
            return self._finished()
        if self.failed:
            return self._apply_failure_policy()
        if self._succeeded():
            self.status["terminalState"] = "Completed"
            self._set("Completed", "AllJobsCompleted", "jobset completed successfully")
            return self._result(delete=_names(self.active))
        suspended = bool(self.spec.get("suspend"))
        self._note_suspension(suspended)
        self._note_readiness()
        changing = [j for j in self.active if bool(j["spec"].get("suspend")) != suspended]
        return self._result(
            create=self._missing(suspended=suspended),
            delete=_names(self.previous),
            suspend=_names(changing) if suspended else (),
            resume=() if suspended else _names([job for job in changing if self._may_start(job)]),
        )

    def _counts(self, replicated: Object) -> Object:
        mine = [j for j in self.current if j["metadata"]["labels"].get(REPLICATED_JOB) == replicated["name"]]
        running = [job for job in mine if job in self.active]
        return {
            "name": replicated["name"],
            "ready": sum(map(is_ready, running)),
            "succeeded": sum(job in self.completed for job in mine),
            "failed": sum(job in self.failed for job in mine),
            "active": sum(bool((job.get("status") or {}).get("active")) for job in running),
            "suspended": sum(bool(job["spec"].get("suspend")) for job in running),
        }

    def _finished(self) -> Plan:
        end = true_condition(self.before, "Completed") or true_condition(self.before, "Failed") or {}
        ended = after_the_end(end["lastTransitionTime"], self.spec.get("ttlSecondsAfterFinished"), self.now)
        return Plan(self.before, delete=_names([*self.active, *self.previous]), **ended)

    def _apply_failure_policy(self) -> Plan:
        verdict = judge(self.jobset, self.failed)
        if not verdict.restart:
            if find_condition(self.status, RESTARTING):
                self._set(RESTARTING, "JobSetFailed", "jobset failed", status="False")
            self.status["terminalState"] = "Failed"
            self._set("Failed", verdict.reason, verdict.message, kind="Warning")
            return self._result(delete=_names(self.active))
        self.status["restarts"] += 1
        if verdict.counts:
            self.status["restartsCountTowardsMax"] = self.status.get("restartsCountTowardsMax", 0) + 1
        self._set(RESTARTING, verdict.reason, verdict.message, kind="Warning")
        return self._result(requeue=0.0)

    def _succeeded(self) -> bool:
        policy = self.spec.get("successPolicy") or {}
        targets = policy.get("targetReplicatedJobs") or [r["name"] for r in replicated_jobs(self.jobset)]
        done = [job for job in self.completed if job["metadata"]["labels"].get(REPLICATED_JOB) in targets]
        if policy.get("operator", "All") == "Any":
            return bool(done)
        wanted = sum(replicas_of(r) for r in replicated_jobs(self.jobset) if r["name"] in targets)
        return bool(done) and len(done) >= wanted

    def _missing(self, *, suspended: bool) -> tuple[Child, ...]:
        """Jobs to make now: not before those that they wait for, nor under a name that is still taken."""
        taken = {job["metadata"]["name"] for job in self.jobs}
        blocking = (self.spec.get("failurePolicy") or {}).get("restartStrategy") == "BlockingRecreate"
        if blocking and self.previous:
            return ()
        return tuple(
            child
            for child in children_of(self.jobset)
            if child.name not in taken and (suspended or self._released(child.replicated_job))
        )

    def _may_start(self, job: Object) -> bool:
        return self._released(str(job["metadata"]["labels"].get(REPLICATED_JOB)))

    def _released(self, name: str) -> bool:
        """Whether the start-up policy and `dependsOn` let the Jobs of this replicated job start."""
        replicated = replicated_jobs(self.jobset)
        place = next(n for n, r in enumerate(replicated) if r["name"] == name)
        in_order = (self.spec.get("startupPolicy") or {}).get("startupPolicyOrder") == "InOrder"
        if in_order and not all(self._reached(earlier["name"], "Ready") for earlier in replicated[:place]):
            return False
        needs = replicated[place].get("dependsOn") or []
        return all(self._reached(need["name"], need["status"]) for need in needs)

    def _reached(self, name: str, state: str) -> bool:
        counts: Object = next((c for c in self.status["replicatedJobsStatus"] if c["name"] == name), {})
        wanted = next((replicas_of(r) for r in replicated_jobs(self.jobset) if r["name"] == name), 0)
        done = counts.get("succeeded", 0) + (counts.get("ready", 0) if state == "Ready" else 0)
        return bool(done >= wanted)

    def _note_suspension(self, suspended: bool) -> None:
        if suspended:
            self._set("Suspended", "SuspendedJobs", "jobset is suspended")
        elif holds(self.status, "Suspended"):
            self._set("Suspended", "ResumeJobs", "jobset is resumed", status="False")

    def _note_readiness(self) -> None:
        """The end of a restart and of an ordered start, as conditions."""
        ready = not self.previous and all(self._reached(r["name"], "Ready") for r in replicated_jobs(self.jobset))
        if ready and holds(self.status, RESTARTING):
            self._set(RESTARTING, "JobsReady", "all jobs are ready", status="False")
        if (self.spec.get("startupPolicy") or {}).get("startupPolicyOrder") != "InOrder" or self.spec.get("suspend"):
            return
        if ready:
            self._set("StartupPolicyCompleted", "StartupPolicyCompleted", "in order startup policy has completed")
        else:
            self._set("StartupPolicyInProgress", "StartupPolicyInProgress", "in order startup policy is in progress")

    def _set(self, name: str, reason: str, message: str, *, status: str = "True", kind: str = "Normal") -> None:
        """Set a condition and, where its status changes, write an event."""
        old = find_condition(self.status, name)
        moment = times.seconds(self.now)
        if old is not None and old["status"] == status:
            old.update(reason=reason, message=message)
            return
        new = {"type": name, "status": status, "reason": reason, "message": message, "lastTransitionTime": moment}
        if old is not None:
            self.status["conditions"][self.status["conditions"].index(old)] = new
        else:
            self.status["conditions"].append(new)
        self.events.append((kind, reason, message))

    def _result(
        self,
        create: tuple[Child, ...] = (),
        delete: tuple[str, ...] = (),
        suspend: tuple[str, ...] = (),
        resume: tuple[str, ...] = (),
        requeue: float | None = None,
    ) -> Plan:
        if not self.status["conditions"]:
            del self.status["conditions"]
        events = tuple(self.events)
        return Plan(self.status, create, delete, suspend, resume, events=events, requeue_seconds=requeue)
