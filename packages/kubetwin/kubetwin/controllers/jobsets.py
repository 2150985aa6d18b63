"""The JobSet controller: carries out what `jobset_plan` decides."""

from __future__ import annotations

from collections.abc import Callable

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.jobset_jobs import has_names, job_of, service_of, subdomain
from kubetwin.controllers.jobset_plan import Plan, is_finished, plan
from kubetwin.controllers.owners import Owned, controller_of
from kubetwin.controllers.work import WorkQueue
from kubetwin.model import times
from kubetwin.model.errors import ApiError, Object
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions
from kubetwin.store import Change

COMPONENT = "jobset"
OURS = "jobset.sigs.k8s.io/jobset-controller"

JobSetKey = tuple[str, str]


class JobSetController:
    """Reconciles JobSets when they or their Jobs change."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        registry = cluster.registry
        self.jobsets = registry.by_key("jobsets.jobset.x-k8s.io")
        self.jobs, self.services = registry.by_key("jobs.batch"), registry.by_key("services")
        self.owned = Owned(cluster.store, "jobs.batch", self.jobsets)
        self.queue: WorkQueue[JobSetKey] = WorkQueue(self.reconcile)
        cluster.store.listen(self.jobsets.key, self._jobset_changed)
        for key in ("jobs.batch", "services"):
            cluster.store.listen(key, self._part_changed)

    def _jobset_changed(self, change: Change) -> None:
        if change.type != "DELETED":
            self.queue.add((change.namespace, change.name))

    def _part_changed(self, change: Change) -> None:
        owner = controller_of(change.object, self.jobsets)
        if owner is not None:
            self.queue.add((change.namespace, owner["name"]))

    def reconcile(self, key: JobSetKey) -> None:
        jobset = self.cluster.store.get(self.jobsets.key, *key)
        if jobset is None or jobset["metadata"].get("deletionTimestamp"):
            return
        if jobset["spec"].get("managedBy", OURS) != OURS:
            return
        steps = plan(jobset, self.owned.of(jobset["metadata"]["uid"]), times.now())
        if has_names(jobset) and not is_finished(steps.status):
            self._ensure_service(jobset)
        self._carry_out(jobset, steps)
        if steps.expired:
            uid = jobset["metadata"]["uid"]
            self.cluster.delete(self.jobsets, *key, DeleteOptions(propagation="Foreground", uid=uid))
        elif steps.requeue_seconds is not None:
            self.queue.add_after(key, steps.requeue_seconds)

    def _carry_out(self, jobset: Object, steps: Plan) -> None:
        namespace = jobset["metadata"]["namespace"]
        for name in steps.delete:
            found = self.cluster.store.get(self.jobs.key, namespace, name)
            if found is not None and not found["metadata"].get("deletionTimestamp"):
                self.cluster.delete(self.jobs, namespace, name, DeleteOptions(propagation="Foreground"))
        for child in steps.create:
            try:
                self.cluster.create(self.jobs, namespace, job_of(jobset, child, steps.restarts))
            except ApiError as fault:
                message = f"job {child.name} creation failed with error: {fault}"
                self.recorder.record(jobset, "Warning", "JobCreationFailed", message, COMPONENT)
                self.queue.add_after((namespace, jobset["metadata"]["name"]), 1.0)
        for names, suspended in ((steps.suspend, True), (steps.resume, False)):
            for name in names:
                self.cluster.modify(self.jobs, namespace, name, _suspension(suspended))
        self._write_status(jobset, steps)
        for kind, reason, message in steps.events:
            self.recorder.record(jobset, kind, reason, message, COMPONENT)

    def _ensure_service(self, jobset: Object) -> None:
        namespace = jobset["metadata"]["namespace"]
        if self.cluster.store.get(self.services.key, namespace, subdomain(jobset)) is None:
            self.cluster.create(self.services, namespace, service_of(jobset))

    def _write_status(self, jobset: Object, steps: Plan) -> None:
        def write(stored: Object) -> None:
            stored["status"] = steps.status

        self.cluster.modify(self.jobsets, jobset["metadata"]["namespace"], jobset["metadata"]["name"], write)


def _suspension(suspended: bool) -> Callable[[Object], None]:
    def write(job: Object) -> None:
        job["spec"]["suspend"] = suspended
        job["metadata"]["generation"] = job["metadata"].get("generation", 1) + 1

    return write


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    JobSetController(cluster, recorder)
