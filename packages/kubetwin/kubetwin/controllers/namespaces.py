"""Objects that every new namespace has, and the deletion of a namespace's contents."""

from __future__ import annotations

import functools

from kubetwin.controllers.events import EventRecorder
from kubetwin.controllers.work import WorkQueue
from kubetwin.model.errors import Object
from kubetwin.state.cluster import Cluster
from kubetwin.state.deletion import DeleteOptions
from kubetwin.store import Change


class NamespaceController:
    """Creates the service account of new namespaces, and deletes the objects of deleted ones."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.namespaces = cluster.registry.by_key("namespaces")
        self.accounts = cluster.registry.by_key("serviceaccounts")
        self.leaving: set[str] = set()
        self.queue: WorkQueue[str] = WorkQueue(self._empty)
        cluster.store.listen("namespaces", self._namespace_changed)
        cluster.store.listen("serviceaccounts", self._account_changed)
        cluster.store.listen("", self._anything_changed)

    def _namespace_changed(self, change: Change) -> None:
        if change.type == "ADDED":
            # At once, not in the queue: the first pod may be in the next request.
            self._ensure_account(change.name)
        elif change.type == "DELETED":
            self.leaving.discard(change.name)
        elif change.object["metadata"].get("deletionTimestamp"):
            self.leaving.add(change.name)
            self.queue.add(change.name)

    def _account_changed(self, change: Change) -> None:
        if change.type == "DELETED" and change.name == "default" and change.namespace not in self.leaving:
            self._ensure_account(change.namespace)

    def _ensure_account(self, namespace: str) -> None:
        found = self.cluster.store.get("namespaces", "", namespace)
        if found is None or found["metadata"].get("deletionTimestamp"):
            return
        if self.cluster.store.get("serviceaccounts", namespace, "default") is None:
            self.cluster.create(self.accounts, namespace, {"metadata": {"name": "default"}})

    def _anything_changed(self, change: Change) -> None:
        if change.type == "DELETED" and change.namespace in self.leaving:
            self.queue.add(change.namespace)

    def _empty(self, name: str) -> None:
        if self.cluster.store.get("namespaces", "", name) is None:
            return
        left = 0
        for resource in self.cluster.registry:
            if not resource.namespaced:
                continue
            for obj in self.cluster.store.objects(resource.key, name):
                if not obj["metadata"].get("deletionTimestamp"):
                    options = DeleteOptions(propagation="Background")
                    self.cluster.delete(resource, name, obj["metadata"]["name"], options)
            left += len(self.cluster.store.objects(resource.key, name))
        if not left:
            self.cluster.modify(self.namespaces, "", name, _finalize)


def _finalize(namespace: Object) -> None:
    namespace["spec"]["finalizers"] = []


class RootCertificates:
    """Puts the cluster's CA into every namespace, where pods expect it."""

    NAME = "kube-root-ca.crt"

    def __init__(self, cluster: Cluster, ca_pem: str) -> None:
        self.cluster = cluster
        self.ca_pem = ca_pem
        self.config_maps = cluster.registry.by_key("configmaps")
        cluster.store.listen("namespaces", self._namespace_changed)

    def _namespace_changed(self, change: Change) -> None:
        if change.type == "ADDED":
            config = {"metadata": {"name": self.NAME}, "data": {"ca.crt": self.ca_pem}}
            self.cluster.create(self.config_maps, change.name, config)


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    NamespaceController(cluster)


def bootstrap(cluster: Cluster, ca_pem: str) -> None:
    """Make the namespaces that every cluster has."""
    RootCertificates(cluster, ca_pem)
    create = functools.partial(cluster.create, cluster.registry.by_key("namespaces"), "")
    for name in ("default", "kube-system", "kube-public", "kube-node-lease"):
        create({"metadata": {"name": name}})
