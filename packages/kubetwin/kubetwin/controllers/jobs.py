"""The batch/v1 Job controller: carries out what `job_plan` decides."""

from __future__ import annotations

import copy
from dataclasses import replace

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.job_failures import count_failures_by_index
from kubetwin.controllers.job_indexes import INDEX_KEY
from kubetwin.controllers.job_plan import TRACKING_FINALIZER, Plan, has_finalizer, plan
from kubetwin.controllers.owners import controller_of, owner_reference
from kubetwin.controllers.reconciler import Key, Reconciler
from kubetwin.controllers.work import WorkQueue
from kubetwin.model import times
from kubetwin.model.errors import Object
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import keep_in_list
from kubetwin.store import Change

FAILURE_COUNT = "batch.kubernetes.io/job-index-failure-count"


def batch_seconds(pods: int) -> float:
    """Delay between a change of a Job's pods and its reconciliation; none for a gang of usual size.

    The real controller always waits for a second; counting all of a thousand pods whenever one changes would
    keep the server busy.
    """
    return 0.0 if pods <= 64 else min(1.0, pods / 1000)


class JobController(Reconciler):
    """Reconciles Jobs when they or their pods change."""

    component = "job-controller"
    propagation = "Foreground"

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster, recorder, "jobs.batch")
        self.pods = cluster.registry.by_key("pods")
        self.owned_pods = self.owned("pods")
        self.orphans: WorkQueue[Key] = WorkQueue(self.release_orphan)

    def is_handled(self, job: Object) -> bool:
        """Also while the Job is being deleted: its pods have finalizers."""
        return not job["spec"].get("managedBy")

    def job_changed(self, change: Change) -> None:
        super().job_changed(change)
        if change.type == "DELETED":
            for pod in self.owned_pods.of(change.object["metadata"]["uid"]):
                self.orphans.add((change.namespace, pod["metadata"]["name"]))

    def part_changed(self, change: Change) -> None:
        for pod in (change.object, change.previous):
            owner = controller_of(pod, self.jobs) if pod else None
            if owner is not None:
                seconds = batch_seconds(self.owned_pods.count(owner["uid"]))
                self.queue.add_after((change.namespace, owner["name"]), seconds)
        if change.type != "DELETED" and has_finalizer(change.object) and not controller_of(change.object, self.jobs):
            self.orphans.add((change.namespace, change.name))

    def reconcile(self, job: Object) -> Plan:
        pods = self.owned_pods.of(job["metadata"]["uid"])
        steps = plan(job, pods, times.now())
        refused = self._make(job, pods, steps)
        for name in steps.release:
            self.cluster.modify(self.pods, job["metadata"]["namespace"], name, _release)
        for name in steps.delete:
            if self.delete(job, self.pods, name):
                self.tell(job, "Normal", "SuccessfulDelete", f"Deleted pod: {name}")
        self.report(job, _without_refused(steps, refused))
        return steps

    def _make(self, job: Object, pods: list[Object], steps: Plan) -> int:
        """Make the pods; how many the server refused."""
        failures = count_failures_by_index(job, pods) if "backoffLimitPerIndex" in job["spec"] else None
        for made, index in enumerate(steps.create):
            pod = pod_of(job, index)
            if failures is not None and index is not None:
                pod["metadata"]["annotations"][FAILURE_COUNT] = str(failures.get(index, 0))
            created = self.create(job, self.pods, pod, "FailedCreate", "Error creating")
            if created is None:
                return len(steps.create) - made
            self.tell(job, "Normal", "SuccessfulCreate", f"Created pod: {created['metadata']['name']}")
        return 0

    def release_orphan(self, key: Key) -> None:
        """Remove the finalizer of a pod whose Job was deleted."""
        pod = self.cluster.store.get(self.pods.key, *key)
        if pod is None or not has_finalizer(pod):
            return
        owner = controller_of(pod, self.jobs)
        job = self.cluster.store.get(self.jobs.key, key[0], owner["name"]) if owner else None
        if job is None or owner is None or job["metadata"]["uid"] != owner["uid"]:
            self.cluster.modify(self.pods, *key, _release)


def _without_refused(steps: Plan, refused: int) -> Plan:
    active = max(0, steps.status.get("active", 0) - refused)
    others = {key: value for key, value in steps.status.items() if key != "active"}
    return replace(steps, status={**others, **({"active": active} if active else {})})


def _release(pod: Object) -> None:
    keep_in_list(pod["metadata"], "finalizers", lambda each: each != TRACKING_FINALIZER)


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
