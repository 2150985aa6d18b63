"""The training operator: carries out what `pytorch_plan` decides."""

from __future__ import annotations

from collections import defaultdict

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.pytorch_plan import Plan, plan
from kubetwin.controllers.pytorch_pods import pod_of, service_of
from kubetwin.controllers.reconciler import Reconciler
from kubetwin.model import times
from kubetwin.model.errors import Object
from kubetwin.state.cluster import Cluster
from kubetwin.store import Change

OURS = "kubeflow.org/training-operator"


class PyTorchJobController(Reconciler):
    """Reconciles PyTorchJobs when they, their pods or their Services change."""

    component = "pytorchjob-controller"

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster, recorder, "pytorchjobs.kubeflow.org")
        self.pods, self.services = cluster.registry.by_key("pods"), cluster.registry.by_key("services")
        self.owned_pods, self.owned_services = self.owned("pods"), self.owned("services")
        self.remade: dict[str, int] = defaultdict(int)

    def job_changed(self, change: Change) -> None:
        super().job_changed(change)
        if change.type == "DELETED":
            self.remade.pop(change.object["metadata"]["uid"], None)

    def is_handled(self, job: Object) -> bool:
        return super().is_handled(job) and (job["spec"].get("runPolicy") or {}).get("managedBy", OURS) == OURS

    def reconcile(self, job: Object) -> Plan:
        uid = job["metadata"]["uid"]
        services = [service["metadata"]["name"] for service in self.owned_services.of(uid)]
        steps = plan(job, self.owned_pods.of(uid), services, times.now(), remade=self.remade[uid])
        self.remade[uid] += steps.remade
        self.report(job, steps)
        self._remove(job, steps)
        self._make(job, steps)
        return steps

    def _make(self, job: Object, steps: Plan) -> None:
        """Create what is missing, Services before the pods that resolve them."""
        wanted = [(self.services, service_of(job, replica)) for replica in steps.create]
        wanted += [(self.pods, pod_of(job, replica)) for replica in steps.create]
        for resource, obj in wanted:
            name = obj["metadata"]["name"]
            if self.cluster.store.get(resource.key, job["metadata"]["namespace"], name) is not None:
                continue
            if self.create(job, resource, obj, f"FailedCreate{resource.kind}", "Error creating") is not None:
                message = f"Created {resource.kind.lower()}: {name}"
                self.tell(job, "Normal", f"SuccessfulCreate{resource.kind}", message)

    def _remove(self, job: Object, steps: Plan) -> None:
        parts = [(self.pods, name) for name in steps.delete_pods]
        parts += [(self.services, name) for name in steps.delete_services]
        for resource, name in parts:
            if self.delete(job, resource, name):
                message = f"Deleted {resource.kind.lower()}: {name}"
                self.tell(job, "Normal", f"SuccessfulDelete{resource.kind}", message)


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    PyTorchJobController(cluster, recorder)
