"""Volcano's scheduler: admits PodGroups and binds gangs, as `volcano_gangs` decides."""

from __future__ import annotations

import asyncio
from collections import defaultdict

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.scheduler import assign, mark_unscheduled
from kubetwin.controllers.scheduling import Amounts
from kubetwin.controllers.usage import NodeUsage
from kubetwin.controllers.volcano_gangs import min_resources, place_gang, room, why_not_admitted
from kubetwin.controllers.volcano_pods import GROUP_KEY, SCHEDULER
from kubetwin.controllers.work import WorkQueue
from kubetwin.model import times
from kubetwin.model.conditions import find_condition
from kubetwin.model.errors import Object
from kubetwin.model.names import namespaced_name
from kubetwin.model.quantity import add_quantities
from kubetwin.resources.pod_defaults import SYSTEM_PRIORITIES
from kubetwin.state.cluster import Cluster
from kubetwin.store import Change

FOREIGN_SECONDS = 5.0
"""Delay before a gang is admitted whose pods another scheduler places: a client may admit it before."""

_ADMITTED = ("Inqueue", "Running", "Unknown")


class VolcanoScheduler:
    """Holds a session whenever something changed: enqueue, then allocate."""

    def __init__(self, cluster: Cluster, recorder: EventRecorder) -> None:
        self.cluster, self.recorder = cluster, recorder
        registry = cluster.registry
        self.groups = registry.by_key("podgroups.scheduling.volcano.sh")
        self.queues = registry.by_key("queues.scheduling.volcano.sh")
        self.usage = NodeUsage(cluster.store).by_node
        self.seen: dict[str, float] = {}
        """Time when each PodGroup appeared, by this process's clock."""
        self.members: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.queue: WorkQueue[str] = WorkQueue(self._hold_session)
        cluster.store.listen("pods", self._pod_changed)
        cluster.store.listen(self.groups.key, self._group_changed)
        for key in ("nodes", self.queues.key):
            cluster.store.listen(key, self._room_changed)

    def _pod_changed(self, change: Change) -> None:
        group = (change.object["metadata"].get("annotations") or {}).get(GROUP_KEY)
        if group:
            members = self.members[(change.namespace, group)]
            (members.discard if change.type == "DELETED" else members.add)(change.name)
            if not members:
                del self.members[(change.namespace, group)]
        if group or self._waiting():
            self.queue.add("")

    def _group_changed(self, change: Change) -> None:
        uid = change.object["metadata"]["uid"]
        if change.type == "DELETED":
            self.seen.pop(uid, None)
        else:
            self.seen.setdefault(uid, asyncio.get_running_loop().time())
        self.queue.add("")

    def _room_changed(self, _change: Change) -> None:
        if self._waiting():
            self.queue.add("")

    def _waiting(self) -> bool:
        return bool(self.cluster.store.objects(self.groups.key))

    def _hold_session(self, _key: str) -> None:
        groups = sorted(self.cluster.store.objects(self.groups.key), key=self._urgency)
        for group in groups:
            if _phase(group) not in _ADMITTED:
                self._enqueue(group, groups)
        for group in groups:
            current = self.cluster.store.get(self.groups.key, *namespaced_name(group))
            if current is not None and _phase(current) in _ADMITTED:
                self._allocate(current)

    def _urgency(self, group: Object) -> tuple[int, str, int]:
        name, metadata = group["spec"].get("priorityClassName", ""), group["metadata"]
        found = self.cluster.store.get("priorityclasses.scheduling.k8s.io", "", name) if name else None
        priority = found["value"] if found else SYSTEM_PRIORITIES.get(name, 0)
        return -int(priority), metadata["creationTimestamp"], int(metadata["resourceVersion"])

    def _enqueue(self, group: Object, groups: list[Object]) -> None:
        """Admit a gang when the cluster and its queue have room for it."""
        wait = self._foreign_wait(group)
        if wait > 0:
            self.queue.add_after("", wait)
            return
        name = group["spec"].get("queue", "default")
        queue = self.cluster.store.get(self.queues.key, "", name)
        promised = self._promised(groups)
        nodes = self.cluster.store.objects("nodes")
        free = add_quantities(
            room(nodes, self.usage), *({name: -amount for name, amount in amounts.items()} for amounts in promised)
        )
        held = add_quantities(
            *(min_resources(g) for g in groups if self._admitted(g) and g["spec"].get("queue", "default") == name)
        )
        refusal = why_not_admitted(group, queue, free, held)
        if not refusal:
            self._set_status(group, {"phase": "Inqueue"})
            return
        self._set_status(group, {"phase": "Pending"})
        self.recorder.record(group, "Normal", "Unschedulable", refusal, SCHEDULER)

    def _foreign_wait(self, group: Object) -> float:
        """Seconds until a gang of another scheduler's pods may be admitted."""
        references = group["metadata"].get("ownerReferences") or []
        namespace = group["metadata"]["namespace"]
        owner = (
            self.cluster.store.get("jobs.batch.volcano.sh", namespace, references[0]["name"]) if references else None
        )
        if owner is None or owner["spec"].get("schedulerName", SCHEDULER) == SCHEDULER:
            return 0.0
        seen = self.seen.get(group["metadata"]["uid"], 0.0)
        return seen + FOREIGN_SECONDS - asyncio.get_running_loop().time()

    def _admitted(self, group: Object) -> bool:
        current = self.cluster.store.get(self.groups.key, *namespaced_name(group))
        return current is not None and _phase(current) in _ADMITTED

    def _promised(self, groups: list[Object]) -> list[Amounts]:
        """Resources that admitted gangs have reserved and do not use yet."""
        found = []
        for group in groups:
            placed, _ = self._pods(group)
            if self._admitted(group) and len(placed) < group["spec"].get("minMember", 0):
                found.append(min_resources(group))
        return found

    def _pods(self, group: Object) -> tuple[list[Object], list[Object]]:
        """The group's pods that have a node, and those of this scheduler that wait for one."""
        namespace, name = namespaced_name(group)
        pods = [
            self.cluster.store.get("pods", namespace, pod) for pod in sorted(self.members.get((namespace, name), ()))
        ]
        present = [pod for pod in pods if pod is not None]
        placed = [p for p in present if p["spec"].get("nodeName") and p["status"].get("phase") != "Failed"]
        waiting = [p for p in present if not p["spec"].get("nodeName") and not p["metadata"].get("deletionTimestamp")]
        return placed, [p for p in waiting if p["spec"].get("schedulerName") == SCHEDULER]

    def _allocate(self, group: Object) -> None:
        """Bind a gang that fits; otherwise report the reason on its pods."""
        placed, waiting = self._pods(group)
        needed = int(group["spec"].get("minMember", 1))
        if not waiting:
            return
        nodes = self.cluster.store.objects("nodes")
        found = place_gang(waiting, len(placed), needed, nodes, self.usage)
        for pod in waiting:
            name = pod["metadata"]["name"]
            if name in found.nodes:
                assign(self.cluster, self.recorder, pod, found.nodes[name], SCHEDULER)
            else:
                self._tell(pod, found.refusals.get(name, ""), found.message)
        if found.message:
            self._set_condition(group, "Unschedulable", "NotEnoughResources", found.message)
        else:
            self._set_status(group, {"phase": "Running"})
            self._set_condition(group, "Scheduled", "tasks in gang are ready to be scheduled", "")

    def _tell(self, pod: Object, refusal: str, gang: str) -> None:
        reason = "Unschedulable" if refusal else "Schedulable"
        message = refusal or gang
        if (find_condition(pod["status"], "PodScheduled") or {}).get("message") == message:
            return
        mark_unscheduled(self.cluster, pod, message, reason)
        self.recorder.record(pod, "Warning", "FailedScheduling", message, SCHEDULER)

    def _set_condition(self, group: Object, kind: str, reason: str, message: str) -> None:
        current = self.cluster.store.get(self.groups.key, *namespaced_name(group)) or group
        conditions = (current.get("status") or {}).get("conditions") or []
        old = find_condition(current.get("status"), kind)
        if old is not None and (old["reason"], old.get("message", "")) == (reason, message):
            return
        new = {
            "type": kind,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": times.seconds(times.now()),
        }
        self._set_status(group, {"conditions": [*(c for c in conditions if c["type"] != kind), new]})

    def _set_status(self, group: Object, change: Object) -> None:
        """Write a part of the status; without a status subresource that is a new generation."""

        def write(stored: Object) -> None:
            status = {**(stored.get("status") or {}), **change}
            if status != stored.get("status"):
                stored["status"] = status
                stored["metadata"]["generation"] = stored["metadata"].get("generation", 0) + 1

        self.cluster.modify(self.groups, *namespaced_name(group), write)


def _phase(group: Object) -> str:
    return str((group.get("status") or {}).get("phase", ""))


def start(cluster: Cluster, recorder: EventRecorder) -> None:
    VolcanoScheduler(cluster, recorder)
