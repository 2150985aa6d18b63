"""The columns of `kubectl get` that resources do not bring along: those of `-o wide`, and tables of the small kinds.

Names, order and contents are those of Kubernetes v1.36 (pkg/printers/internalversion).
"""

from __future__ import annotations

from collections.abc import Sequence

from kubetwin.model import times
from kubetwin.model.errors import Object
from kubetwin.resources.resource import Column, Resource

_RBAC = "rbac.authorization.k8s.io"
_NONE = "<none>"


def columns_of(resource: Resource) -> Sequence[Column]:
    """Every column of a kind, in kubectl's order."""
    columns = list(resource.columns or _TABLES.get(resource.key, _BY_CREATION))
    for before, column in _WIDE.get(resource.key, ()):
        names = [known.name for known in columns]
        columns.insert(names.index(before) if before in names else len(columns), column)
    return columns


def _age(obj: Object) -> str:
    return times.age(obj["metadata"].get("creationTimestamp", ""), times.now())


def _address(kind: str) -> Column:
    def value(node: Object) -> str:
        addresses = (node.get("status") or {}).get("addresses") or []
        return next((a["address"] for a in addresses if a["type"] == f"{kind}IP"), _NONE)

    return Column(f"{kind}-IP", value, priority=1)


def _node_info(name: str, key: str) -> Column:
    def value(node: Object) -> str:
        return ((node.get("status") or {}).get("nodeInfo") or {}).get(key) or "<unknown>"

    return Column(name, value, priority=1)


def _source(event: Object) -> str:
    source = event.get("source") or {}
    component = source.get("component") or event.get("reportingComponent", "")
    return f"{component}, {source['host']}" if source.get("host") else component


def _first_seen(event: Object) -> str:
    return times.age(event.get("firstTimestamp") or event.get("eventTime") or "", times.now())


def _quota(part: str) -> Column:
    def value(quota: Object) -> str:
        status = quota.get("status") or {}
        used = status.get("used") or {}
        limits = sorted((status.get("hard") or quota["spec"].get("hard") or {}).items())
        of_limits = part == "Limit"
        shown = [f"{k}: {used.get(k, '0')}/{v}" for k, v in limits if k.startswith("limits.") == of_limits]
        return ", ".join(shown)

    return Column(part, value)


def _selector(job: Object) -> str:
    labels = (job["spec"].get("selector") or {}).get("matchLabels") or {}
    return ",".join(f"{key}={value}" for key, value in sorted(labels.items())) or _NONE


def _containers(job: Object) -> str:
    return ",".join(container["name"] for container in job["spec"]["template"]["spec"]["containers"])


def _budget(name: str, key: str) -> Column:
    return Column(name, lambda budget: str(budget["spec"].get(key, "N/A")))


def _role(binding: Object) -> str:
    return f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}"


def _subjects(name: str, kind: str) -> Column:
    def value(binding: Object) -> str:
        mine = [subject for subject in binding.get("subjects") or [] if subject["kind"] == kind]
        place = [f"{s['namespace']}/" if s.get("namespace") and kind == "ServiceAccount" else "" for s in mine]
        return ", ".join(p + s["name"] for p, s in zip(place, mine, strict=True))

    return Column(name, value, priority=1)


_NAME = Column("Name", lambda obj: obj["metadata"]["name"], format="name")
_AGE = Column("Age", _age)
_BY_CREATION = (_NAME, Column("Created At", lambda obj: obj["metadata"].get("creationTimestamp", ""), type="date"))
_BINDING = (
    _NAME,
    Column("Role", _role),
    _AGE,
    _subjects("Users", "User"),
    _subjects("Groups", "Group"),
    _subjects("ServiceAccounts", "ServiceAccount"),
)

_TABLES: dict[str, tuple[Column, ...]] = {
    "serviceaccounts": (_NAME, Column("Secrets", lambda sa: len(sa.get("secrets") or []), type="integer"), _AGE),
    "resourcequotas": (_NAME, _quota("Request"), _quota("Limit"), _AGE),
    "poddisruptionbudgets.policy": (
        _NAME,
        _budget("Min Available", "minAvailable"),
        _budget("Max Unavailable", "maxUnavailable"),
        Column("Allowed Disruptions", lambda b: b["status"].get("disruptionsAllowed", 0), type="integer"),
        _AGE,
    ),
    "priorityclasses.scheduling.k8s.io": (
        _NAME,
        Column("Value", lambda priority: priority["value"], type="integer"),
        Column("Global-Default", lambda priority: bool(priority.get("globalDefault")), type="boolean"),
        _AGE,
        Column("PreemptionPolicy", lambda priority: priority["preemptionPolicy"]),
    ),
    f"rolebindings.{_RBAC}": _BINDING,
    f"clusterrolebindings.{_RBAC}": _BINDING,
}
"""Tables of kinds that bring no columns; those that are not here either show when they were made."""

_WIDE: dict[str, tuple[tuple[str, Column], ...]] = {
    "nodes": (
        ("", _address("Internal")),
        ("", _address("External")),
        ("", _node_info("OS-Image", "osImage")),
        ("", _node_info("Kernel-Version", "kernelVersion")),
        ("", _node_info("Container-Runtime", "containerRuntimeVersion")),
    ),
    "events": (
        ("Message", Column("Subobject", lambda e: e["involvedObject"].get("fieldPath", ""), priority=1)),
        ("Message", Column("Source", _source, priority=1)),
        ("", Column("First Seen", _first_seen, priority=1)),
        ("", Column("Count", lambda event: event.get("count") or 1, type="integer", priority=1)),
        ("", Column("Name", lambda event: event["metadata"]["name"], priority=1)),
    ),
    "jobs.batch": (
        ("Images", Column("Containers", _containers, priority=1)),
        ("", Column("Selector", _selector, priority=1)),
    ),
}
"""Further columns, each with the column that it stands before ("" for the end)."""
