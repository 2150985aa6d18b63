"""Namespaces."""

from __future__ import annotations

from kubetwin.model.errors import FieldError, Object, bad_value
from kubetwin.model.names import dns_label
from kubetwin.resources.pod_security import LEVELS
from kubetwin.resources.resource import AGE, NAME, STATUS, Column, Resource, Subresource
from kubetwin.store import Store

ENFORCE = "pod-security.kubernetes.io/enforce"
WARN = "pod-security.kubernetes.io/warn"
_OTHER_MODES = ("pod-security.kubernetes.io/audit", WARN)


def _default(namespace: Object) -> None:
    labels = namespace["metadata"].setdefault("labels", {})
    labels["kubernetes.io/metadata.name"] = namespace["metadata"].get("name", "")


def _validate(namespace: Object) -> list[FieldError]:
    """Labels of Pod Security admission hold levels (pod-security-admission: ValidateNamespace)."""
    labels = namespace["metadata"].get("labels") or {}
    return [
        bad_value(f"metadata.labels[{label}]", labels[label], f"must be one of {', '.join(LEVELS)}")
        for label in (ENFORCE, *_OTHER_MODES)
        if label in labels and labels[label] not in LEVELS
    ]


def _prepare(namespace: Object, _store: Store) -> None:
    namespace["spec"] = {"finalizers": ["kubernetes"]}
    namespace["status"] = {"phase": "Active"}


def _prepare_update(new: Object, old: Object, _store: Store) -> None:
    """Finalizers of a namespace change through their own subresource only."""
    new["spec"] = {**(new.get("spec") or {}), "finalizers": (old.get("spec") or {}).get("finalizers") or []}


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
        prepare_update=_prepare_update,
        validate=_validate,
        mark_deleted=_mark_deleted,
        columns=(NAME, Column("Status", lambda ns: ns["status"]["phase"]), AGE),
    ),
)
