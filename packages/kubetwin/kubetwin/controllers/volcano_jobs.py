"""Volcano's job controller: carries out what `volcano_plan` decides."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.owners import Owned, controller_of
from kubetwin.controllers.volcano_plan import Plan, phase_of, plan
from kubetwin.controllers.volcano_plugins import PLUGINS, unknown_plugins
from kubetwin.controllers.volcano_pods import group_name, pod_group, pod_of
from kubetwin.controllers.volcano_policies import Request, observe
from kubetwin.controllers.work import WorkQueue
from kubetwin.model import times
from kubetwin.model.errors import ApiError, Object
from kubetwin.resources.resource import Resource
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions
from kubetwin.store import Change

COMPONENT = "vc-controller-manager"
JobKey = tuple[str, str]


class VolcanoJobController:
    """Handles the events of Volcano Jobs, one after the other."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        registry = cluster.registry
        self.jobs = registry.by_key("jobs.batch.volcano.sh")
        self.groups = registry.by_key("podgroups.scheduling.volcano.sh")
        self.pods = registry.by_key("pods")
        self.owned = Owned(cluster.store, "pods", self.jobs)
        self.requests: dict[JobKey, deque[Request]] = defaultdict(deque)
        self.queue: WorkQueue[JobKey] = WorkQueue(self._handle_all)
        cluster.store.listen(self.jobs.key, self._job_changed)
        cluster.store.listen(self.groups.key, self._group_changed)
        cluster.store.listen("pods", self._pod_changed)

    def _job_changed(self, change: Change) -> None:
        key = (change.namespace, change.name)
        if change.type == "DELETED":
            self.requests.pop(key, None)
        else:
            self._request(key, Request())

    def _group_changed(self, change: Change) -> None:
        owner = controller_of(change.object, self.jobs)
        if owner is not None:
            self._request((change.namespace, owner["name"]), Request())

    def _pod_changed(self, change: Change) -> None:
        owner = controller_of(change.object, self.jobs)
        job = self.cluster.store.get(self.jobs.key, change.namespace, owner["name"]) if owner else None
        if job is None or owner is None or job["metadata"]["uid"] != owner["uid"]:
            return
        pods, deleted = self.owned.of(owner["uid"]), change.type == "DELETED"
        request = observe(job, change.object, change.previous, pods, deleted=deleted)
        self._request((change.namespace, owner["name"]), request)

    def _request(self, key: JobKey, request: Request) -> None:
        waiting = self.requests[key]
        if request not in waiting:
            waiting.append(request)
        self.queue.add(key)

    def _handle_all(self, key: JobKey) -> None:
        waiting = self.requests.pop(key, deque())
        for request in waiting or [Request()]:
            self._handle(key, request)

    def _handle(self, key: JobKey, request: Request) -> None:
        job = self.cluster.store.get(self.jobs.key, *key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        missing = unknown_plugins(job)
        if missing:
            message = f"this cluster has no Volcano plugin named {', '.join(missing)}: take it out of spec.plugins"
            self.recorder.record(job, "Warning", "PluginError", message, COMPONENT)
            return
        group = self.cluster.store.get(self.groups.key, key[0], group_name(job))
        group_phase = ((group or {}).get("status") or {}).get("phase", "")
        steps = plan(job, request, self.owned.of(job["metadata"]["uid"]), group_phase, times.now())
        self._carry_out(job, steps)
        if steps.expired:
            options = DeleteOptions(propagation="Background", uid=job["metadata"]["uid"])
            self.cluster.delete(self.jobs, *key, options)
        elif steps.requeue_seconds is not None:
            self.queue.add_after(key, steps.requeue_seconds)

    def _carry_out(self, job: Object, steps: Plan) -> None:
        namespace = job["metadata"]["namespace"]
        for name in steps.delete:
            if self.cluster.store.get(self.pods.key, namespace, name) is not None:
                self.cluster.delete(self.pods, namespace, name)
        self._equip(job, steps)
        for task, index in steps.create:
            try:
                self.cluster.create(self.pods, namespace, pod_of(job, task, index))
            except ApiError as fault:
                self.recorder.record(job, "Warning", "FailedCreate", f"Error creating pod: {fault}", COMPONENT)
                self.queue.add_after((namespace, job["metadata"]["name"]), 1.0)
                return  # the status counts the created pods, not the refused ones
        self._write_status(job, steps)
        for kind, reason, message in steps.events:
            self.recorder.record(job, kind, reason, message, COMPONENT)

    def _belongings(self, job: Object) -> Iterator[tuple[Resource, Object]]:
        """The objects that belong to a Job beside its pods: its PodGroup and those of its plugins."""
        for name, arguments in (job["spec"].get("plugins") or {}).items():
            for key, obj in PLUGINS[name].objects(job, arguments).items():
                yield self.cluster.registry.by_key(key), obj
        yield self.groups, pod_group(job)

    def _equip(self, job: Object, steps: Plan) -> None:
        namespace = job["metadata"]["namespace"]
        for resource, obj in self._belongings(job) if steps.equipped is not None else ():
            name = obj["metadata"]["name"]
            exists = self.cluster.store.get(resource.key, namespace, name) is not None
            if steps.equipped and not exists:
                self.cluster.create(resource, namespace, obj)
            elif not steps.equipped and exists:
                self.cluster.delete(resource, namespace, name)

    def _write_status(self, job: Object, steps: Plan) -> None:
        def write(stored: Object) -> None:
            stored["status"] = steps.status

        before = phase_of(job)
        self.cluster.modify(self.jobs, job["metadata"]["namespace"], job["metadata"]["name"], write)
        after = steps.status["state"]["phase"]
        if after != before:
            self.recorder.record(job, "Normal", "JobStatus", f"Job is now {after}", COMPONENT)


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    VolcanoJobController(cluster, recorder)
