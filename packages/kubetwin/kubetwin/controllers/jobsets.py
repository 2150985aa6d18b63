"""The JobSet controller: carries out what `jobset_plan` decides."""

from __future__ import annotations

from collections.abc import Callable

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.jobset_jobs import has_names, job_of, service_of, subdomain
from kubetwin.controllers.jobset_plan import Plan, is_finished, plan
from kubetwin.controllers.reconciler import Reconciler
from kubetwin.model import times
from kubetwin.model.errors import Object
from kubetwin.state.cluster import Cluster

OURS = "jobset.sigs.k8s.io/jobset-controller"


class JobSetController(Reconciler):
    """Reconciles JobSets when they or their Jobs change."""

    component = "jobset"
    propagation = "Foreground"

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster, recorder, "jobsets.jobset.x-k8s.io")
        self.children, self.services = cluster.registry.by_key("jobs.batch"), cluster.registry.by_key("services")
        self.owned_jobs = self.owned("jobs.batch")
        cluster.store.listen("services", self.part_changed)

    def is_handled(self, job: Object) -> bool:
        return super().is_handled(job) and job["spec"].get("managedBy", OURS) == OURS

    def reconcile(self, job: Object) -> Plan:
        steps = plan(job, self.owned_jobs.of(job["metadata"]["uid"]), times.now())
        if has_names(job) and not is_finished(steps.status):
            self._ensure_service(job)
        for name in steps.delete:
            self.delete(job, self.children, name, "Foreground")
        for child in steps.create:
            words = f"job {child.name} creation failed with error"
            self.create(job, self.children, job_of(job, child, steps.restarts), "JobCreationFailed", words)
        for names, suspended in ((steps.suspend, True), (steps.resume, False)):
            for name in names:
                self.cluster.modify(self.children, job["metadata"]["namespace"], name, _suspension(suspended))
        self.report(job, steps)
        return steps

    def _ensure_service(self, jobset: Object) -> None:
        namespace = jobset["metadata"]["namespace"]
        if self.cluster.store.get(self.services.key, namespace, subdomain(jobset)) is None:
            self.cluster.create(self.services, namespace, service_of(jobset))


def _suspension(suspended: bool) -> Callable[[Object], None]:
    def write(job: Object) -> None:
        job["spec"]["suspend"] = suspended
        job["metadata"]["generation"] = job["metadata"].get("generation", 1) + 1

    return write


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    JobSetController(cluster, recorder)
