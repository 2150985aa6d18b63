"""Common code of the controllers of all kinds of jobs: steps are planned by pure functions, and carried out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import KW_ONLY, dataclass
from datetime import datetime
from typing import Any, ClassVar

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.owners import Owned, controller_of
from kubetwin.controllers.work import WorkQueue
from kubetwin.model import times
from kubetwin.model.errors import ApiError, Object
from kubetwin.model.names import namespaced_name
from kubetwin.resources.resource import Resource
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions
from kubetwin.store import Change

Key = tuple[str, str]
"""Namespace and name."""

Event = tuple[str, str, str]
"""Normal or Warning, reason, message."""

REFUSED_SECONDS = 1.0
"""Delay before an object that the server has refused is created again."""


@dataclass(frozen=True)
class Steps:
    """The steps of one reconciliation that jobs of every kind have."""

    status: Object
    _: KW_ONLY
    events: tuple[Event, ...] = ()
    requeue_seconds: float | None = None
    expired: bool = False
    """Whether the time to live after the end is over, so that the job is deleted."""


def after_the_end(end: str | None, lifetime: float | None, now: datetime) -> dict[str, Any]:
    """Fields of `Steps` for a job that has ended.

    Args:
        end: When it ended.
        lifetime: Its time to live from then on in seconds; None for ever.
        now: The time.
    """
    left = times.seconds_left(end, lifetime, now)
    return {} if left is None else {"requeue_seconds": max(left, 0.0), "expired": left <= 0}


class Reconciler(ABC):
    """Reconciles the jobs of one kind when they change, or what they own."""

    component: ClassVar[str]
    """Name of the controller in its events."""
    propagation: ClassVar[str] = "Background"
    """Propagation policy of a job's deletion after its time to live."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder, key: str) -> None:
        self.cluster, self.recorder = cluster, recorder
        self.jobs = cluster.registry.by_key(key)
        self.queue: WorkQueue[Key] = WorkQueue(self.visit)
        cluster.store.listen(key, self.job_changed)

    @abstractmethod
    def reconcile(self, job: Object) -> Steps:
        """Plan the steps for a job and carry out those of its own kind."""

    def owned(self, key: str) -> Owned:
        """The jobs' objects of a resource, whose changes reconcile their jobs."""
        found = Owned(self.cluster.store, key, self.jobs)
        self.cluster.store.listen(key, self.part_changed)
        return found

    def is_handled(self, job: Object) -> bool:
        """Whether this controller has to do with the job."""
        return not job["metadata"].get("deletionTimestamp")

    def job_changed(self, change: Change) -> None:
        if change.type != "DELETED":
            self.queue.add((change.namespace, change.name))

    def part_changed(self, change: Change) -> None:
        owner = controller_of(change.object, self.jobs)
        if owner is not None:
            self.queue.add((change.namespace, owner["name"]))

    def visit(self, key: Key) -> None:
        job = self.find(key)
        if job is not None:
            self.conclude(job, self.reconcile(job))

    def find(self, key: Key) -> Object | None:
        job = self.cluster.store.get(self.jobs.key, *key)
        return job if job is not None and self.is_handled(job) else None

    def conclude(self, job: Object, steps: Steps) -> None:
        """Delete a job whose time to live is over; come back to others when it is time."""
        if steps.expired:
            options = DeleteOptions(propagation=self.propagation, uid=job["metadata"]["uid"])
            self.cluster.delete(self.jobs, *namespaced_name(job), options)
        elif steps.requeue_seconds is not None:
            self.queue.add_after(namespaced_name(job), steps.requeue_seconds)

    def report(self, job: Object, steps: Steps) -> None:
        """Write the status and the events."""
        self.cluster.set_status(self.jobs, job, steps.status)
        for event in steps.events:
            self.tell(job, *event)

    def tell(self, job: Object, kind: str, reason: str, message: str) -> None:
        """Write an event about a job."""
        self.recorder.record(job, kind, reason, message, self.component)

    def create(self, job: Object, resource: Resource, obj: Object, reason: str, words: str) -> Object | None:
        """Create an object of a job. If the server refuses it, return None, record an event with the reason and try
        again later."""
        namespace = job["metadata"]["namespace"]
        try:
            return self.cluster.create(resource, namespace, obj)
        except ApiError as fault:
            self.tell(job, "Warning", reason, f"{words}: {fault}")
            self.queue.add_after((namespace, job["metadata"]["name"]), REFUSED_SECONDS)
            return None

    def delete(self, job: Object, resource: Resource, name: str, propagation: str = "") -> bool:
        """Delete an object of a job; whether it was there and not on its way out."""
        namespace = job["metadata"]["namespace"]
        found = self.cluster.store.get(resource.key, namespace, name)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return False
        self.cluster.delete(resource, namespace, name, DeleteOptions(propagation=propagation))
        return True
