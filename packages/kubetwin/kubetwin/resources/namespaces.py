"""Namespaces."""

from __future__ import annotations

from kubetwin.model import times
from kubetwin.model.errors import Object
from kubetwin.model.names import dns_label
from kubetwin.resources.resource import STATUS, Column, Resource, Subresource
from kubetwin.store import Store


def _default(namespace: Object) -> None:
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")


def _prepare(namespace: Object, _store: Store) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _mark_deleted(namespace: Object) -> bool:
    namespace["status"]["phase"] = "Terminating"
    return bool(namespace["spec"].get("finalizers"))


RESOURCES = (
    Resource(
        kind="Namespace",
        plural="namespaces",
        namespaced=False,
        type_name="io.k8s.api.core.v1.Namespace",
        short_names=("ns",),
        storage_hash="Q3oi5N2YM8M=",
        verbs=("create", "delete", "get", "list", "patch", "update", "watch"),
        name_rule=dns_label,
        returns_deleted=True,
        fields=("status.phase",),
        subresources=(Subresource("finalize", ("update",)), STATUS),
        default=_default,
        prepare=_prepare,
        mark_deleted=_mark_deleted,
        columns=(
            Column("Name", lambda ns: ns["metadata"]["name"], format="name"),
            Column("Status", lambda ns: ns["status"]["phase"]),
            Column("Age", lambda ns: times.age(ns["metadata"]["creationTimestamp"], times.now())),
        ),
    ),
)
