"""Nodes, and the leases that are their heartbeats."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from ipaddress import ip_network

from kubetwin.model.conditions import holds
from kubetwin.model.errors import (
    FieldError,
    Object,
    Shown,
    bad_value,
    duplicate,
    forbidden_field,
    negative_numbers,
    not_supported,
    required,
)
from kubetwin.model.go_types import go_text
from kubetwin.model.names import follows, label_value, qualified_name
from kubetwin.resources.placement_validation import EFFECTS
from kubetwin.resources.resource import AGE, NAME, STATUS, Column, Resource
from kubetwin.store import Store


def _default(node: Object) -> None:
    node.setdefault("spec", {})


def _prepare(node: Object, _store: Store) -> None:
    node["metadata"].setdefault("annotations", {}).setdefault("node.alpha.kubernetes.io/ttl", "0")


def is_ready(node: Object) -> bool:
    return holds(node.get("status"), "Ready")


def _displayed_status(node: Object) -> str:
    words = ["Ready" if is_ready(node) else "NotReady"]
    if node["spec"].get("unschedulable"):
        words.append("SchedulingDisabled")
    return ",".join(words)


def _roles(node: Object) -> str:
    prefix = "node-role.kubernetes.io/"
    labels = node["metadata"].get("labels") or {}
    return ",".join(sorted(key[len(prefix) :] for key in labels if key.startswith(prefix))) or "<none>"


def _info(node: Object) -> Object:
    found: Object = (node.get("status") or {}).get("nodeInfo") or {}
    return found


def _address(node: Object, kind: str) -> str:
    addresses = (node.get("status") or {}).get("addresses") or []
    return next((str(each["address"]) for each in addresses if each["type"] == kind), "<none>")


def _validate(node: Object) -> list[FieldError]:
    return [*_taint_faults(node["spec"].get("taints") or []), *_network_faults(node["spec"])]


def _taint_faults(taints: list[Object]) -> Iterator[FieldError]:
    """Keys, values and effects (pkg/apis/core/validation: validateNodeTaints)."""
    seen: set[tuple[str, str]] = set()
    for place, taint in enumerate(taints):
        path, key, effect = f"spec.taints[{place}]", taint.get("key", ""), taint.get("effect", "")
        yield from follows(qualified_name, f"{path}.key", key)
        if fault := label_value(taint.get("value", "")):
            yield bad_value(f"{path}.value", taint["value"], fault)
        if not effect:
            yield required(f"{path}.effect")
        elif effect not in EFFECTS:
            yield not_supported(f"{path}.effect", effect, EFFECTS)
        if (key, effect) in seen:
            repeated = duplicate(path, Shown(go_text(taint, "Taint")))
            yield replace(repeated, message=f"{repeated.message}: taints must be unique by key and effect pair")
        seen.add((key, effect))


def _network_faults(spec: Object) -> Iterator[FieldError]:
    given = spec.get("podCIDRs") or ([spec["podCIDR"]] if spec.get("podCIDR") else [])
    for place, network in enumerate(given):
        try:
            ip_network(network, strict=False)
            valid = "/" in network
        except ValueError:
            valid = False
        if not valid:
            detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield bad_value(f"spec.podCIDRs[{place}]", network, detail)


def _validate_update(new: Object, old: Object) -> list[FieldError]:
    """Refuse changes of a node's assigned fields (pkg/apis/core/validation: ValidateNodeUpdate)."""
    before, after, faults = old["spec"], new["spec"], list[FieldError]()
    for field, path in (("podCIDR", "spec.podCIDRs"), ("providerID", "spec.providerID")):
        if before.get(field) and after.get(field) != before[field]:
            faults.append(forbidden_field(path, f'node updates may not change {field} except from "" to valid'))
    return [*_validate(new), *faults]


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
        validate=_validate,
        validate_update=_validate_update,
        columns=(
            NAME,
            Column("Status", _displayed_status),
            Column("Roles", _roles),
            AGE,
            Column("Version", lambda node: _info(node).get("kubeletVersion", "")),
            Column("Internal-IP", lambda node: _address(node, "InternalIP"), priority=1),
            Column("External-IP", lambda node: _address(node, "ExternalIP"), priority=1),
            *(
                Column(name, lambda node, key=key: _info(node).get(key) or "<unknown>", priority=1)  # type: ignore[misc]
                for name, key in (
                    ("OS-Image", "osImage"),
                    ("Kernel-Version", "kernelVersion"),
                    ("Container-Runtime", "containerRuntimeVersion"),
                )
            ),
        ),
    ),
    Resource(
        kind="Lease",
        plural="leases",
        group="coordination.k8s.io",
        type_name="io.k8s.api.coordination.v1.Lease",
        validate=_validate_lease,
        columns=(NAME, Column("Holder", lambda lease: (lease.get("spec") or {}).get("holderIdentity", "")), AGE),
    ),
)
