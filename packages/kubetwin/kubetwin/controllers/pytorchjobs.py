"""The training operator: carries out what `pytorch_plan` decides."""

from __future__ import annotations

from collections import defaultdict

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.owners import Owned, controller_of
from kubetwin.controllers.pytorch_plan import Plan, plan
from kubetwin.controllers.pytorch_pods import pod_of, service_of
from kubetwin.controllers.work import WorkQueue
from kubetwin.model import times
from kubetwin.model.errors import ApiError, Object
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions
from kubetwin.store import Change

COMPONENT = "pytorchjob-controller"
OURS = "kubeflow.org/training-operator"

JobKey = tuple[str, str]


class PyTorchJobController:
    """Reconciles PyTorchJobs when they, their pods or their Services change."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        registry = cluster.registry
        self.jobs = registry.by_key("pytorchjobs.kubeflow.org")
        self.pods, self.services = registry.by_key("pods"), registry.by_key("services")
        self.owned_pods = Owned(cluster.store, "pods", self.jobs)
        self.owned_services = Owned(cluster.store, "services", self.jobs)
        self.remade: dict[str, int] = defaultdict(int)
        self.queue: WorkQueue[JobKey] = WorkQueue(self.reconcile)
        cluster.store.listen(self.jobs.key, self._job_changed)
        for key in ("pods", "services"):
            cluster.store.listen(key, self._part_changed)

    def _job_changed(self, change: Change) -> None:
        if change.type == "DELETED":
            self.remade.pop(change.object["metadata"]["uid"], None)
        else:
            self.queue.add((change.namespace, change.name))

    def _part_changed(self, change: Change) -> None:
        owner = controller_of(change.object, self.jobs)
        if owner is not None:
            self.queue.add((change.namespace, owner["name"]))

    def reconcile(self, key: JobKey) -> None:
        job = self.cluster.store.get(self.jobs.key, *key)
        if job is None or job["metadata"].get("deletionTimestamp"):
            return
        if (job["spec"].get("runPolicy") or {}).get("managedBy", OURS) != OURS:
            return
        uid = job["metadata"]["uid"]
        services = [service["metadata"]["name"] for service in self.owned_services.of(uid)]
        steps = plan(job, self.owned_pods.of(uid), services, times.now(), remade=self.remade[uid])
        self.remade[uid] += steps.remade
        self._write_status(job, steps)
        for kind, reason, message in steps.events:
            self.recorder.record(job, kind, reason, message, COMPONENT)
        self._remove(job, steps)
        if steps.expired:
            self.cluster.delete(self.jobs, *key, DeleteOptions(propagation="Background", uid=uid))
            return
        if not self._create(job, steps):
            self.queue.add_after(key, 1.0)
        elif steps.requeue_seconds is not None:
            self.queue.add_after(key, steps.requeue_seconds)

    def _create(self, job: Object, steps: Plan) -> bool:
        """Create what is missing, Services before the pods that resolve them; True if the server took all."""
        namespace = job["metadata"]["namespace"]
        wanted = [(self.services, service_of(job, replica)) for replica in steps.create]
        wanted += [(self.pods, pod_of(job, replica)) for replica in steps.create]
        taken = True
        for resource, obj in wanted:
            name = obj["metadata"]["name"]
            if self.cluster.store.get(resource.key, namespace, name) is not None:
                continue
            what = resource.kind.lower()
            try:
                self.cluster.create(resource, namespace, obj)
            except ApiError as fault:
                self.recorder.record(
                    job, "Warning", f"FailedCreate{resource.kind}", f"Error creating: {fault}", COMPONENT
                )
                taken = False
                continue
            message = f"Created {what}: {name}"
            self.recorder.record(job, "Normal", f"SuccessfulCreate{resource.kind}", message, COMPONENT)
        return taken

    def _remove(self, job: Object, steps: Plan) -> None:
        namespace = job["metadata"]["namespace"]
        parts = [(self.pods, name) for name in steps.delete_pods]
        parts += [(self.services, name) for name in steps.delete_services]
        for resource, name in parts:
            found = self.cluster.store.get(resource.key, namespace, name)
            if found is None or found["metadata"].get("deletionTimestamp"):
                continue
            self.cluster.delete(resource, namespace, name)
            message = f"Deleted {resource.kind.lower()}: {name}"
            self.recorder.record(job, "Normal", f"SuccessfulDelete{resource.kind}", message, COMPONENT)

    def _write_status(self, job: Object, steps: Plan) -> None:
        def write(stored: Object) -> None:
            stored["status"] = steps.status

        self.cluster.modify(self.jobs, job["metadata"]["namespace"], job["metadata"]["name"], write)


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    PyTorchJobController(cluster, recorder)
