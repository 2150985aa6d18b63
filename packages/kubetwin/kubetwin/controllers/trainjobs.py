"""The TrainJob controller of Kubeflow Trainer: makes the JobSet of each TrainJob and mirrors its status.

A TrainJob keeps the runtime that it began with, in a ConfigMap. Its JobSet changes only while one of the two is
suspended (github.com/kubeflow/trainer, v2.3.0: pkg/runtime/core/snapshot.go, pkg/runtime/framework/plugins/jobset).
"""

from __future__ import annotations

import copy
from typing import Any

import yaml

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.owners import controller_of, owner_reference
from kubetwin.controllers.reconciler import REFUSED_SECONDS, Reconciler
from kubetwin.controllers.trainjob_jobset import UnsupportedRuntime, make_jobset
from kubetwin.controllers.trainjob_plan import RUNTIMES, Plan, begin, is_finished, is_managed, plan, runtime_kind
from kubetwin.model import times
from kubetwin.model.errors import ApiError, Object, not_found
from kubetwin.model.names import namespaced_name
from kubetwin.state.cluster import Cluster

LONGEST_MESSAGE = 950
"""Characters of an error that an event shows."""


class NotMade(Exception):
    """A TrainJob's objects cannot be made now. The message is the controller's."""


class TrainJobController(Reconciler):
    """Reconciles TrainJobs when they or their JobSets change."""

    component = "trainer-trainjob-controller"

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        super().__init__(cluster, recorder, "trainjobs.trainer.kubeflow.org")
        self.jobsets = cluster.registry.by_key("jobsets.jobset.x-k8s.io")
        self.configs = cluster.registry.by_key("configmaps")
        self.runtimes = {kind: cluster.registry.by_key(key) for kind, key in RUNTIMES.items()}
        self.owned(self.jobsets.key)

    def is_handled(self, job: Object) -> bool:
        return super().is_handled(job) and is_managed(job)

    def reconcile(self, job: Object) -> Plan:
        if runtime_kind(job) in RUNTIMES and not is_finished(begin(job)):
            try:
                self._make(job)
            except (NotMade, UnsupportedRuntime, ApiError) as fault:
                self._retry(job, str(fault))
        steps = plan(job, self._jobset(job), times.now())
        self.report(job, steps)
        if steps.delete_jobset:
            self.delete(job, self.jobsets, job["metadata"]["name"])
        return steps

    def _jobset(self, job: Object) -> Object | None:
        return self.cluster.store.get(self.jobsets.key, *namespaced_name(job))

    def _retry(self, job: Object, fault: str) -> None:
        text = fault if len(fault) <= LONGEST_MESSAGE else f"{fault[:LONGEST_MESSAGE]} ..."
        message = f"TrainJob resources reconciliation failed: {text}"
        self.tell(job, "Warning", "TrainJobResourcesCreationFailed", message)
        self.queue.add_after(namespaced_name(job), REFUSED_SECONDS)

    def _make(self, job: Object) -> None:
        """Create the JobSet, or change one that is suspended or is to be suspended.

        Raises:
            NotMade: If the runtime is missing.
            UnsupportedRuntime: If this controller does not know what to do with it.
            ApiError: If the server refuses the JobSet.
        """
        runtime = self._runtime(job)
        old = self._jobset(job)
        if old is not None and not job["spec"].get("suspend") and not old["spec"].get("suspend"):
            return
        wanted = make_jobset(job, runtime)
        namespace = job["metadata"]["namespace"]
        if old is None:
            self.cluster.create(self.jobsets, namespace, wanted)
            return
        new = copy.deepcopy(old)
        new["spec"] |= wanted["spec"]
        for kind in ("labels", "annotations"):
            if kind in wanted["metadata"]:
                new["metadata"][kind] = {**(old["metadata"].get(kind) or {}), **wanted["metadata"][kind]}
        self.cluster.update(self.jobsets, namespace, new)

    def _runtime(self, job: Object) -> Object:
        """The runtime as it was when the TrainJob was first seen."""
        namespace, name = namespaced_name(job)
        kept = self.cluster.store.get(self.configs.key, namespace, f"{name}-runtime-snapshot")
        if kept is not None:
            return self._kept(job, kept)
        resource = self.runtimes[runtime_kind(job)]
        wanted = job["spec"]["runtimeRef"]["name"]
        found = self.cluster.store.get(resource.key, namespace if resource.namespaced else "", wanted)
        if found is None:
            fault = not_found(resource.group_resource, wanted)
            words = f"{resource.kind} specified in TrainJob is not found"
            if not resource.namespaced:
                words = f"not found {resource.kind} specified in TrainJob"
            raise NotMade(f"{words}: {fault}")
        snapshot: Object = {
            "metadata": {"name": f"{name}-runtime-snapshot", "ownerReferences": [owner_reference(job)]},
            "data": {"runtime": yaml.safe_dump(found, sort_keys=True)},
        }
        self.cluster.create(self.configs, namespace, snapshot)
        return found

    def _kept(self, job: Object, kept: Object) -> Object:
        owner = controller_of(kept, self.jobs)
        if owner is None or owner["uid"] != job["metadata"]["uid"]:
            words = "invalid runtime snapshot: a snapshot configmap exists but is owned by another object"
            raise NotMade(f"unable to get runtime snapshot: {words}")
        runtime: Any = yaml.safe_load(kept["data"]["runtime"])
        return dict(runtime)


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    TrainJobController(cluster, recorder)
