"""Objects that the operators' installations create: Volcano's queues, and records of their definitions.

New queues are opened, as Volcano's queue controller does, and jobs for a queue that is not open are refused, as its
webhook does (volcano, pkg/webhooks/admission/jobs/validate/admit_job.go).
"""

from __future__ import annotations

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.work import WorkQueue
from kubetwin.model.errors import Object, denied
from kubetwin.resources.resource import Resource
from kubetwin.resources.unoffered import DEFINITIONS, definition_of, establish
from kubetwin.state.cluster import Cluster
from kubetwin.store import Change

ROOT, DEFAULT = "root", "default"
JOBS, QUEUES = "jobs.batch.volcano.sh", "queues.scheduling.volcano.sh"
WEBHOOK = "validatejob.volcano.sh"


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    """Make the queues; custom kinds remember no changes from before they were installed."""
    queues = cluster.registry.by_key(QUEUES)
    for name in (ROOT, DEFAULT):
        queue: Object = {"metadata": {"name": name}, "spec": {"weight": 1, "reclaimable": True}}
        if name != ROOT:
            queue["spec"]["parent"] = ROOT
        cluster.create(queues, "", queue)
        cluster.modify(queues, "", name, _open)
    _QueueController(cluster)
    cluster.admission.append(lambda resource, obj: _check_queue(cluster, resource, obj))
    definitions = cluster.registry.by_key(DEFINITIONS)
    for resource in cluster.registry:
        if resource.custom:
            cluster.store.begin_history(resource.key)
            cluster.create(definitions, "", definition_of(resource))
            cluster.modify(definitions, "", resource.key, establish)


def _open(queue: Object) -> None:
    queue["status"] = {"state": "Open", "allocated": {}}


class _QueueController:
    """Opens every new queue."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._queue: WorkQueue[str] = WorkQueue(self._look)
        cluster.store.listen(QUEUES, self._changed)

    def _changed(self, change: Change) -> None:
        if change.type == "ADDED":
            self._queue.add(change.name)

    def _look(self, name: str) -> None:
        found = self._cluster.store.get(QUEUES, "", name)
        if found is not None and not (found.get("status") or {}).get("state"):
            self._cluster.modify(self._cluster.registry.by_key(QUEUES), "", name, _open)


def _check_queue(cluster: Cluster, resource: Resource, job: Object) -> None:
    """Refuse a Volcano Job whose queue is not there, not open, or the parent of all others.

    Raises:
        ApiError: 400, as the webhook's refusal arrives.
    """
    if resource.key != JOBS:
        return
    name = job["spec"].get("queue") or DEFAULT
    queue = cluster.store.get(QUEUES, "", name)
    if queue is None:
        raise denied(WEBHOOK, f'unable to find job queue: queue.scheduling.volcano.sh "{name}" not found;')
    state = (queue.get("status") or {}).get("state", "")
    if state != "Open":
        raise denied(WEBHOOK, f"can only submit job to queue with state `Open`, queue `{name}` status is `{state}`;")
    if name == ROOT:
        raise denied(WEBHOOK, "can not submit job to root queue;")
