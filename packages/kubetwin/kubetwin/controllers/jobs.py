"""The batch/v1 Job controller: carries out what `job_plan` decides."""

from __future__ import annotations

import copy

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.job_failures import count_failures_by_index
from kubetwin.controllers.job_indexes import INDEX_KEY
from kubetwin.controllers.job_plan import TRACKING_FINALIZER, Plan, has_finalizer, plan
from kubetwin.controllers.owners import Owned, controller_of, owner_reference
from kubetwin.controllers.work import WorkQueue
from kubetwin.model import times
from kubetwin.model.errors import ApiError, Object
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions
from kubetwin.store import Change

COMPONENT = "job-controller"
FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"

JobKey = tuple[str, str]


def batch_seconds(pods: int) -> float:
    """Delay between a change of a Job's pods and its reconciliation; none for a gang of usual size.

    The real controller always waits for a second; counting all of a thousand pods whenever one changes would
    keep the server busy.
    """
    return 0.0 if pods <= 64 else min(1.0, pods / 1000)


class JobController:
    """Reconciles Jobs when they or their pods change."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        self.jobs = cluster.registry.by_key("jobs.batch")
        self.pods = cluster.registry.by_key("pods")
        self.owned = Owned(cluster.store, "pods", self.jobs)
        self.queue: WorkQueue[JobKey] = WorkQueue(self.reconcile)
        self.orphans: WorkQueue[JobKey] = WorkQueue(self.release_orphan)
        cluster.store.listen("jobs.batch", self._job_changed)
        cluster.store.listen("pods", self._pod_changed)

    def _job_changed(self, change: Change) -> None:
        if change.type != "DELETED":
            self.queue.add((change.namespace, change.name))
            return
        for pod in self.owned.of(change.object["metadata"]["uid"]):
            self.orphans.add((change.namespace, pod["metadata"]["name"]))

    def _pod_changed(self, change: Change) -> None:
        for pod in (change.object, change.previous):
            owner = controller_of(pod, self.jobs) if pod else None
            if owner is not None:
                self.queue.add_after((change.namespace, owner["name"]), batch_seconds(self.owned.count(owner["uid"])))
        if change.type != "DELETED" and has_finalizer(change.object) and not controller_of(change.object, self.jobs):
            self.orphans.add((change.namespace, change.name))

    def reconcile(self, key: JobKey) -> None:
        job = self.cluster.store.get(self.jobs.key, *key)
        if job is None or job["spec"].get("managedBy"):
            return
        pods = self.owned.of(job["metadata"]["uid"])
        steps = plan(job, pods, times.now())
        refused = self._create(job, pods, steps)
        self._remove(job, steps)
        self._write_status(job, steps, refused)
        for kind, reason, message in steps.events:
            self.recorder.record(job, kind, reason, message, COMPONENT)
        if steps.expired:
            self.cluster.delete(self.jobs, *key, DeleteOptions(propagation="Foreground", uid=job["metadata"]["uid"]))
        elif steps.requeue_seconds is not None:
            self.queue.add_after(key, steps.requeue_seconds)
        if refused:
            self.queue.add_after(key, 1.0)

    def _create(self, job: Object, pods: list[Object], steps: Plan) -> int:
        """Make the pods; how many the server refused."""
        failures = count_failures_by_index(job, pods) if "backoffLimitPerIndex" in job["spec"] else None
        for made, index in enumerate(steps.create):
            pod = pod_of(job, index)
            if failures is not None and index is not None:
                pod["metadata"]["annotations"][FAILURE_COUNT] = str(failures.get(index, 0))
            try:
                created = self.cluster.create(self.pods, job["metadata"]["namespace"], pod)
            except ApiError as fault:
                self.recorder.record(job, "Warning", "FailedCreate", f"Error creating: {fault}", COMPONENT)
                return len(steps.create) - made
            message = f"Created pod: {created['metadata']['name']}"
            self.recorder.record(job, "Normal", "SuccessfulCreate", message, COMPONENT)
        return 0

    def _remove(self, job: Object, steps: Plan) -> None:
        namespace = job["metadata"]["namespace"]
        for name in steps.release:
            self.cluster.modify(self.pods, namespace, name, _release)
        for name in steps.delete:
            if self.cluster.store.get(self.pods.key, namespace, name) is not None:
                self.cluster.delete(self.pods, namespace, name)
                self.recorder.record(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name}", COMPONENT)

    def _write_status(self, job: Object, steps: Plan, refused: int) -> None:
        status = dict(steps.status)
        if refused:
            status["active"] = max(0, status.get("active", 0) - refused)
            if not status["active"]:
                del status["active"]

        def write(stored: Object) -> None:
            stored["status"] = status

        self.cluster.modify(self.jobs, job["metadata"]["namespace"], job["metadata"]["name"], write)

    def release_orphan(self, key: JobKey) -> None:
        """Remove the finalizer of a pod whose Job was deleted."""
        pod = self.cluster.store.get(self.pods.key, *key)
        if pod is None or not has_finalizer(pod):
            return
        owner = controller_of(pod, self.jobs)
        job = self.cluster.store.get(self.jobs.key, key[0], owner["name"]) if owner else None
        if job is None or owner is None or job["metadata"]["uid"] != owner["uid"]:
            self.cluster.modify(self.pods, *key, _release)


def _release(pod: Object) -> None:
    finalizers = [f for f in pod["metadata"].get("finalizers") or [] if f != TRACKING_FINALIZER]
    pod["metadata"]["finalizers"] = finalizers
    if not finalizers:
        del pod["metadata"]["finalizers"]


def pod_of(job: Object, index: int | None) -> Object:
    """A new pod of a Job, for one completion index or for none."""
    template = copy.deepcopy(job["spec"]["template"])
    metadata = template.get("metadata") or {}
    job_name = job["metadata"]["name"]
    labels, annotations = dict(metadata.get("labels") or {}), dict(metadata.get("annotations") or {})
    spec = template["spec"]
    prefix = f"{job_name}-"
    if index is not None:
        labels[INDEX_KEY] = annotations[INDEX_KEY] = str(index)
        spec["hostname"] = f"{job_name}-{index}"
        prefix = f"{job_name}-{index}-"
        for container in [*(spec.get("initContainers") or []), *spec["containers"]]:
            _add_index_variable(container)
    return {
        "metadata": {
            "generateName": prefix,
            "labels": labels,
            "annotations": annotations,
            "finalizers": [*(metadata.get("finalizers") or []), TRACKING_FINALIZER],
            "ownerReferences": [owner_reference(job)],
        },
        "spec": spec,
    }


def _add_index_variable(container: Object) -> None:
    variables = container.setdefault("env", [])
    if all(variable.get("name") != "JOB_COMPLETION_INDEX" for variable in variables):
        source = {"fieldRef": {"apiVersion": "v1", "fieldPath": f"metadata.labels['{INDEX_KEY}']"}}
        variables.append({"name": "JOB_COMPLETION_INDEX", "valueFrom": source})


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    JobController(cluster, recorder)
