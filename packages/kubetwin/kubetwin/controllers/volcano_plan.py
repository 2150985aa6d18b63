"""The next steps of Volcano's job controller, as a function of the Job, an event, its objects and the time.

After volcano-sh/volcano 1.15: pkg/controllers/job/state (the phases) and job_controller_actions.go (sync and kill).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime

from kubetwin.controllers.reconciler import Event, Steps, after_the_end
from kubetwin.controllers.volcano_pods import TASK_KEY, min_available, pod_name, tasks_of, wanted_pods
from kubetwin.controllers.volcano_policies import Action, Request, action_for
from kubetwin.model import times
from kubetwin.model.errors import Object

DEFAULT_RETRIES = 3
FINISHED = ("Completed", "Failed", "Terminated")
_KILLING = {Action.ABORT: "Aborting", Action.TERMINATE: "Terminating", Action.COMPLETE: "Completing"}
_KILLED = {"Aborting": "Aborted", "Terminating": "Terminated", "Completing": "Completed"}
_ENDED = ("Succeeded", "Failed")
_KEPT = ("state", "conditions", "minAvailable", "retryCount", "version")
"""Fields of a status that remain after a kill."""


@dataclass(frozen=True)
class Plan(Steps):
    """The steps of one reconciliation: delete, keep or drop the gang's objects, create, write status and events."""

    create: tuple[tuple[Object, int], ...] = ()
    """Task and index of each new pod."""
    delete: tuple[str, ...] = ()
    equipped: bool | None = None
    """Whether PodGroup and plugins' objects have to be there, have to go, or (None) are not changed."""


def plan(job: Object, request: Request, pods: Sequence[Object], group_phase: str, now: datetime) -> Plan:
    """The next steps for one Job.

    Args:
        job: The Job as stored.
        request: The event that the reconciliation handles.
        pods: All pods that it controls.
        group_phase: Phase of its PodGroup, "" when the scheduler has not seen it.
        now: The time, for conditions and time to live.
    """
    return _Planner(job, request, pods, group_phase, now).plan()


def phase_of(job: Object) -> str:
    return str(((job.get("status") or {}).get("state") or {}).get("phase", ""))


@dataclass
class _Planner:
    job: Object
    request: Request
    pods: Sequence[Object]
    group_phase: str
    now: datetime
    events: list[Event] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.spec: Object = self.job["spec"]
        self.before: Object = self.job.get("status") or {}
        self.status: Object = {key: self.before[key] for key in _KEPT if key in self.before}
        self.status["minAvailable"] = min_available(self.job)
        self.phase = phase_of(self.job)
        self.leaving = [pod for pod in self.pods if pod["metadata"].get("deletionTimestamp")]
        self.staying = [pod for pod in self.pods if pod not in self.leaving]

    def plan(self) -> Plan:
        action = action_for(self.job, self.request)
        if not self.phase:
            self._enter("Pending")
            return Plan(self.status, equipped=True)
        if self.phase in ("Pending", "Running"):
            return self._act(action) if action is not Action.SYNC else self._sync()
        if action is Action.RESUME and self.phase in ("Aborting", "Aborted"):
            return self._restart()
        if self.phase == "Restarting":
            return self._wait_for_restart()
        if self.phase in _KILLED:
            return self._wait_for_end()
        return self._finished()

    def _act(self, action: Action) -> Plan:
        self.events.append(("Normal", "ExecuteAction", f"Start to execute action {action.value}"))
        if action is Action.RESTART:
            return self._restart()
        if action in (Action.RESTART_TASK, Action.RESTART_POD):
            return self._restart_part(action)
        if action in _KILLING:
            return self._kill(_KILLING[action], keep=_ENDED)
        return self._sync()

    def _restart(self) -> Plan:
        self.status["retryCount"] = self.before.get("retryCount", 0) + 1
        return self._kill("Restarting", keep=())

    def _restart_part(self, action: Action) -> Plan:
        """Make only the failed pod, or its task, again; the gang stays."""
        retries = self.before.get("retryCount", 0) + 1
        if retries > self._max_retries:
            return self._kill("Failed", keep=_ENDED)
        chosen = [
            pod["metadata"]["name"]
            for pod in self.staying
            if pod["metadata"]["name"] == self.request.pod
            or (action is Action.RESTART_TASK and pod["metadata"]["labels"].get(TASK_KEY) == self.request.task)
        ]
        status = {**self.before, "retryCount": retries}
        return Plan(status, delete=tuple(chosen), events=tuple(self.events))

    @property
    def _max_retries(self) -> int:
        return int(self.spec.get("maxRetry", DEFAULT_RETRIES))

    def _kill(self, phase: str, *, keep: Sequence[str]) -> Plan:
        """End the pods but for those in the phases to keep, and take the gang's belongings away."""
        if self.status.get("retryCount", 0) >= self._max_retries:
            keep = _ENDED  # the last attempt's pods are kept for diagnosis
        killed = [pod for pod in self.staying if pod["status"].get("phase") not in keep]
        self.status["version"] = self.before.get("version", 0) + 1
        self._enter(phase)
        self._count_leaving(len(killed))
        names = tuple(pod["metadata"]["name"] for pod in killed)
        return Plan(self.status, delete=names, equipped=False, events=tuple(self.events))

    def _count_leaving(self, killed: int = 0) -> int:
        total = len(self.leaving) + killed
        if total:
            self.status["terminating"] = total
        self.status["runningDuration"] = _duration(times.parse(self.job["metadata"]["creationTimestamp"]), self.now)
        return total

    def _wait_for_restart(self) -> Plan:
        leaving = self._count_leaving()
        if self.before.get("retryCount", 0) >= self._max_retries:
            self._enter("Failed")
        elif sum(int(task["replicas"]) for task in tasks_of(self.job)) - leaving >= min_available(self.job):
            self.status.pop("runningDuration")
            self._enter("Pending")
        return Plan(self.status, equipped=False)

    def _wait_for_end(self) -> Plan:
        busy = [pod for pod in self.staying if pod["status"].get("phase") not in _ENDED]
        if not self._count_leaving(len(busy)):
            self._enter(_KILLED[self.phase])
        return Plan(self.status, delete=tuple(pod["metadata"]["name"] for pod in busy), equipped=False)

    def _finished(self) -> Plan:
        """End the remaining pods of an ended Job, and delete it after its time to live."""
        left = [pod["metadata"]["name"] for pod in self.staying if pod["status"].get("phase") not in _ENDED]
        end = self.before["state"]["lastTransitionTime"] if self.phase in FINISHED else None
        status = {key: value for key, value in self.before.items() if key != "terminating" or self.leaving}
        ended = after_the_end(end, self.spec.get("ttlSecondsAfterFinished"), self.now)
        return Plan(status, delete=tuple(left), equipped=False, **ended)

    def _sync(self) -> Plan:
        """Create the missing pods, once the scheduler has admitted the gang, and count."""
        present = {pod["metadata"]["name"] for pod in self.pods}
        names = {pod_name(self.job, task["name"], index): (task, index) for task, index in wanted_pods(self.job)}
        admitted = self.group_phase not in ("", "Pending")
        create = tuple(place for name, place in names.items() if name not in present) if admitted else ()
        surplus = tuple(sorted(present - set(names)))
        counted = [(_task(pod), str(pod["status"].get("phase"))) for pod in self.staying]
        counted += [(task["name"], "Pending") for task, _ in create]
        self._count(counted)
        if self.spec.get("plugins") and (present or create):
            self.status["controlledResources"] = {f"plugin-{name}": name for name in self.spec["plugins"]}
        ended = self._next_phase()
        if ended:
            self._enter(ended)
        if ended in FINISHED:
            self._count_leaving()
        return Plan(self.status, create, surplus, equipped=True, events=tuple(self.events))

    def _count(self, counted: Sequence[tuple[str, str]]) -> None:
        phases = Counter(phase for _, phase in counted)
        for phase in ("Pending", "Running", "Succeeded", "Failed", "Unknown"):
            if phases[phase]:
                self.status[phase.lower()] = phases[phase]
        if self.leaving:
            self.status["terminating"] = len(self.leaving)
        tasks: dict[str, Counter[str]] = {}
        for task, phase in counted:
            tasks.setdefault(task, Counter())[phase] += 1
        if tasks:
            self.status["taskStatusCount"] = {task: {"phase": dict(found)} for task, found in sorted(tasks.items())}

    def _next_phase(self) -> str:
        """The phase that the counts lead to ("" to stay)."""
        running, succeeded, failed = (self.status.get(key, 0) for key in ("running", "succeeded", "failed"))
        if self.phase == "Pending":
            return "Running" if running + succeeded + failed >= min_available(self.job) else ""
        enough = self.spec.get("minSuccess")
        if enough is not None and succeeded >= enough:
            return "Completed"
        if succeeded + failed < sum(int(task["replicas"]) for task in tasks_of(self.job)):
            return ""
        if any(self._fell_short(task) for task in tasks_of(self.job)):
            return "Failed"
        wanted = enough if enough is not None else min_available(self.job)
        return "Completed" if succeeded >= wanted else "Failed"

    def _fell_short(self, task: Object) -> bool:
        least = task.get("minAvailable")
        counts = self.status.get("taskStatusCount", {}).get(task["name"], {"phase": {}})["phase"]
        return least is not None and counts.get("Succeeded", 0) < least

    def _enter(self, phase: str) -> None:
        moment = times.seconds(self.now)
        self.status["state"] = {"phase": phase, "lastTransitionTime": moment}
        kept = [c for c in self.status.get("conditions") or [] if c["status"] != phase]
        self.status["conditions"] = [*kept, {"status": phase, "lastTransitionTime": moment}]


def _task(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get(TASK_KEY, ""))


def _duration(since: datetime, until: datetime) -> str:
    """A duration as Go prints it: `3s`, `2m5s`, `1h0m0s`."""
    minutes, seconds = divmod(max(0, int((until - since).total_seconds())), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes}m{seconds}s"
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"
