"""Nodes, and the leases that are their heartbeats."""

from __future__ import annotations

from kubetwin.model import times
from kubetwin.model.errors import FieldError, Object, bad_value, negative_numbers
from kubetwin.resources.resource import STATUS, Column, Resource
from kubetwin.store import Store


def _default(node: Object) -> None:
    node.setdefault("spec", {})


def _prepare(node: Object, _store: Store) -> None:
    node["metadata"].setdefault("annotations", {}).setdefault("node.alpha.kubernetes.io/ttl", "0")


def is_ready(node: Object) -> bool:
    conditions = (node.get("status") or {}).get("conditions") or []
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)


def _displayed_status(node: Object) -> str:
    words = ["Ready" if is_ready(node) else "NotReady"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(key[len(prefix) :] for key in labels if key.startswith(prefix))) or "<none>"


def _version(node: Object) -> str:
    return str(((node.get("status") or {}).get("nodeInfo") or {}).get("kubeletVersion", ""))


def _validate_lease(lease: Object) -> list[FieldError]:
    """Numbers of a lease (pkg/apis/coordination/validation: ValidateLeaseSpec)."""
    spec = lease.get("spec") or {}
    seconds = spec.get("leaseDurationSeconds")
    empty = seconds is not None and seconds <= 0
    faults = [bad_value("spec.leaseDurationSeconds", seconds, "must be greater than 0")] if empty else []
    return [*faults, *negative_numbers("spec", spec, ["leaseTransitions"])]


RESOURCES = (
    Resource(
        kind="Node",
        plural="nodes",
        namespaced=False,
        type_name="io.k8s.api.core.v1.Node",
        short_names=("no",),
        storage_hash="XwShjMxG9Fs=",
        keeps_status=True,
        fields=("spec.unschedulable",),
        subresources=(STATUS,),
        default=_default,
        prepare=_prepare,
        columns=(
            Column("Name", lambda node: node["metadata"]["name"], format="name"),
            Column("Status", _displayed_status),
            Column("Roles", _roles),
            Column("Age", lambda node: times.age(node["metadata"]["creationTimestamp"], times.now())),
            Column("Version", _version),
        ),
    ),
    Resource(
        kind="Lease",
        plural="leases",
        group="coordination.k8s.io",
        type_name="io.k8s.api.coordination.v1.Lease",
        validate=_validate_lease,
        columns=(
            Column("Name", lambda lease: lease["metadata"]["name"], format="name"),
            Column("Holder", lambda lease: (lease.get("spec") or {}).get("holderIdentity", "")),
            Column("Age", lambda lease: times.age(lease["metadata"]["creationTimestamp"], times.now())),
        ),
    ),
)
