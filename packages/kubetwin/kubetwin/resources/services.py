"""Services. Nothing routes traffic; names resolve on the node."""

from __future__ import annotations

from kubetwin.model import times
from kubetwin.model.errors import FieldError, Object, bad_value, duplicate, not_supported, required
from kubetwin.model.names import dns_label, validate_labels
from kubetwin.resources.resource import STATUS, Column, Resource
from kubetwin.store import Store

_AFFINITIES = ("ClientIP", "None")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")


def _default(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    spec.setdefault("internalTrafficPolicy", "Cluster")
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _prepare(service: Object, store: Store) -> None:
    spec = service["spec"]
    service["status"] = {"loadBalancer": {}}
    if spec["type"] == "ExternalName":
        return
    address = spec.get("clusterIP") or _free_address(store)
    spec.update(clusterIP=address, clusterIPs=[address])
    spec.setdefault("ipFamilies", ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "SingleStack")


def _free_address(store: Store) -> str:
    """The lowest free address of 10.96.0.0/16, kubeadm's service range."""
    taken = {service["spec"].get("clusterIP") for service in store.objects("services")}
    numbers = range(10, 2**16 - 1)
    return next(a for n in numbers if (a := f"10.96.{n // 256}.{n % 256}") not in taken)


def _validate(service: Object) -> list[FieldError]:
    spec, faults = service["spec"], []
    headless = spec.get("clusterIP") == "None"
    if not spec.get("ports") and not headless and spec["type"] != "ExternalName":
        faults.append(required("spec.ports"))
    for place, port in enumerate(spec.get("ports") or []):
        number = port.get("port", 0)
        if not 1 <= number <= 65535:
            faults.append(bad_value(f"spec.ports[{place}].port", number, "must be between 1 and 65535, inclusive"))
        name, before = port.get("name"), spec["ports"][:place]
        if len(spec["ports"]) > 1 and not name:
            faults.append(required(f"spec.ports[{place}].name"))
        elif name and any(name == other.get("name") for other in before):
            faults.append(duplicate(f"spec.ports[{place}].name", name))
        if port["protocol"] not in _PROTOCOLS:
            faults.append(not_supported(f"spec.ports[{place}].protocol", port["protocol"], _PROTOCOLS))
    faults += validate_labels(spec.get("selector"), "spec.selector")
    if spec["sessionAffinity"] not in _AFFINITIES:
        faults.append(not_supported("spec.sessionAffinity", spec["sessionAffinity"], _AFFINITIES))
    if spec["type"] not in _TYPES:
        faults.append(not_supported("spec.type", spec["type"], _TYPES))
    return faults


def _validate_update(new: Object, old: Object) -> list[FieldError]:
    if new["spec"].get("clusterIP") and new["spec"]["clusterIP"] != old["spec"].get("clusterIP"):
        return [bad_value("spec.clusterIPs[0]", [new["spec"]["clusterIP"]], "may not change once set")]
    for kept in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
        if kept in old["spec"]:
            new["spec"].setdefault(kept, old["spec"][kept])
    return []


def _ports(service: Object) -> str:
    ports = service["spec"].get("ports") or []
    return ",".join(f"{port['port']}/{port['protocol']}" for port in ports) or "<none>"


def _selector(service: Object) -> str:
    return ",".join(f"{k}={v}" for k, v in (service["spec"].get("selector") or {}).items()) or "<none>"


RESOURCES = (
    Resource(
        kind="Service",
        plural="services",
        type_name="io.k8s.api.core.v1.Service",
        short_names=("svc",),
        categories=("all",),
        storage_hash="0/CO1lhkEBI=",
        name_rule=dns_label,
        returns_deleted=True,
        fields=("spec.clusterIP", "spec.type"),
        subresources=(STATUS,),
        default=_default,
        prepare=_prepare,
        validate=_validate,
        validate_update=_validate_update,
        columns=(
            Column("Name", lambda s: s["metadata"]["name"], format="name"),
            Column("Type", lambda s: s["spec"]["type"]),
            Column("Cluster-IP", lambda s: s["spec"].get("clusterIP") or "<none>"),
            Column("External-IP", lambda _s: "<none>"),
            Column("Port(s)", _ports),
            Column("Age", lambda s: times.age(s["metadata"]["creationTimestamp"], times.now())),
            Column("Selector", _selector, priority=1),
        ),
    ),
)
