"""Volcano's job controller: carries out what `volcano_plan` decides."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterator

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.owners import controller_of
from kubetwin.controllers.reconciler import Key, Reconciler
from kubetwin.controllers.volcano_plan import Plan, phase_of, plan
from kubetwin.controllers.volcano_plugins import PLUGINS, unknown_plugins
from kubetwin.controllers.volcano_pods import group_name, pod_group, pod_of
from kubetwin.controllers.volcano_policies import Request, observe
from kubetwin.model import times
from kubetwin.model.errors import Object
from kubetwin.resources.resource import Resource
from kubetwin.state.cluster import Cluster
from kubetwin.store import Change


class VolcanoJobController(Reconciler):
    """Handles the events of Volcano Jobs, one after the other."""

    component = "vc-controller-manager"

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster, recorder, "jobs.batch.volcano.sh")
        self.groups = cluster.registry.by_key("podgroups.scheduling.volcano.sh")
        self.pods = cluster.registry.by_key("pods")
        self.requests: dict[Key, deque[Request]] = defaultdict(deque)
        self.owned_pods = self.owned("pods")
        cluster.store.listen(self.groups.key, self.part_changed)

    def job_changed(self, change: Change) -> None:
        super().job_changed(change)
        if change.type == "DELETED":
            self.requests.pop((change.namespace, change.name), None)

    def part_changed(self, change: Change) -> None:
        owner = controller_of(change.object, self.jobs)
        job = self.cluster.store.get(self.jobs.key, change.namespace, owner["name"]) if owner else None
        if job is None or owner is None or job["metadata"]["uid"] != owner["uid"]:
            return
        key, request = (change.namespace, owner["name"]), Request()
        if change.key == "pods":
            pods, deleted = self.owned_pods.of(owner["uid"]), change.type == "DELETED"
            request = observe(job, change.object, change.previous, pods, deleted=deleted)
        if request not in self.requests[key]:
            self.requests[key].append(request)
        self.queue.add(key)

    def visit(self, key: Key) -> None:
        for request in self.requests.pop(key, None) or [Request()]:
            job = self.find(key)
            if job is not None:
                self.conclude(job, self.reconcile(job, request))

    def reconcile(self, job: Object, request: Request | None = None) -> Plan:
        missing = unknown_plugins(job)
        if missing:
            message = f"this cluster has no Volcano plugin named {', '.join(missing)}: take it out of spec.plugins"
            self.tell(job, "Warning", "PluginError", message)
            return Plan(job.get("status") or {})
        group = self.cluster.store.get(self.groups.key, job["metadata"]["namespace"], group_name(job))
        group_phase = ((group or {}).get("status") or {}).get("phase", "")
        pods = self.owned_pods.of(job["metadata"]["uid"])
        steps = plan(job, request or Request(), pods, group_phase, times.now())
        for name in steps.delete:
            self.delete(job, self.pods, name)
        self._equip(job, steps)
        for task, index in steps.create:
            pod = pod_of(job, task, index)
            if self.create(job, self.pods, pod, "FailedCreate", "Error creating pod") is None:
                return steps  # the status counts the created pods, not the refused ones
        self.report(job, steps)
        after = steps.status["state"]["phase"]
        if after != phase_of(job):
            self.tell(job, "Normal", "JobStatus", f"Job is now {after}")
        return steps

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


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    VolcanoJobController(cluster, recorder)
