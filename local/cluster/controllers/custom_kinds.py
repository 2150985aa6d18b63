"""What the installation of the operators leaves in a cluster: their definitions' short memory, and Volcano's queues."""

from __future__ import annotations

from local.cluster.controllers.events import EventRecorder
from local.cluster.model.errors import Object
from local.cluster.state.cluster import Cluster

QUEUES = ("root", "default")


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    """Make the queues; custom kinds remember no changes from before they were installed."""
    queues = cluster.registry.by_key("queues.scheduling.volcano.sh")
    for name in QUEUES:
        queue: Object = {"metadata": {"name": name}, "spec": {"weight": 1, "reclaimable": True}}
        if name != "root":
            queue["spec"]["parent"] = "root"
        cluster.create(queues, "", queue)
        cluster.modify(queues, "", name, _open)
    for resource in cluster.registry:
        if resource.custom:
            cluster.store.begin_history(resource.key)


def _open(queue: Object) -> None:
    queue["status"] = {"state": "Open", "allocated": {}}
