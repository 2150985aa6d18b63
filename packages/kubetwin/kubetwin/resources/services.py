"""Services. Nothing routes traffic; names resolve on the node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import ip_address, ip_network

from kubetwin.model import errors
from kubetwin.model.errors import FieldError, Object, bad_value
from kubetwin.model.names import dns_label
from kubetwin.resources.resource import AGE, NAME, STATUS, Column, Resource
from kubetwin.resources.service_validation import validate_service
from kubetwin.store import Store

_RANGE = ip_network("10.96.0.0/16")
"""Addresses of Services: kubeadm's range."""

_NODE_PORTS = range(30000, 32768)
"""kube-apiserver's --service-node-port-range."""

_ADDRESSES = ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy")
_AFFINITY_SECONDS = 10800


def _default(service: Object) -> None:
    spec = service.setdefault("spec", {})
    spec.setdefault("type", "ClusterIP")
    spec.setdefault("sessionAffinity", "None")
    if spec["sessionAffinity"] == "ClientIP":
        config = spec.setdefault("sessionAffinityConfig", {})
        config.setdefault("clientIP", {}).setdefault("timeoutSeconds", _AFFINITY_SECONDS)
    if spec["type"] != "ExternalName":
        spec.setdefault("internalTrafficPolicy", "Cluster")
    if _is_external(spec):
        spec.setdefault("externalTrafficPolicy", "Cluster")
    if spec["type"] == "LoadBalancer":
        spec.setdefault("allocateLoadBalancerNodePorts", True)
    if spec.get("clusterIP") and not spec.get("clusterIPs"):
        spec["clusterIPs"] = [spec["clusterIP"]]
    for port in spec.get("ports") or []:
        port.setdefault("protocol", "TCP")
        port.setdefault("targetPort", port.get("port"))


def _is_external(spec: Object) -> bool:
    return spec["type"] in ("NodePort", "LoadBalancer")


def _prepare(service: Object, store: Store) -> None:
    service["status"] = {"loadBalancer": {}}
    _allocate(service, store)


def _prepare_update(new: Object, old: Object, store: Store) -> None:
    """Keep what was allocated, and drop what another type does not have."""
    before, after = old["spec"], new["spec"]
    if "ExternalName" not in (before["type"], after["type"]):
        for field in _ADDRESSES:
            if field in before and not after.get(field):
                after[field] = before[field]
    if before["type"] != after["type"]:
        _drop_fields_of_other_types(before, after)
    if _is_external(before) and _is_external(after):
        numbers = {port.get("name", ""): port.get("nodePort", 0) for port in before.get("ports") or []}
        used = {port.get("nodePort") for port in after.get("ports") or []}
        for port in after.get("ports") or []:
            number = numbers.get(port.get("name", ""), 0)
            if not port.get("nodePort") and number and number not in used:
                port["nodePort"] = number
                used.add(number)
    _allocate(new, store)


def _drop_fields_of_other_types(before: Object, after: Object) -> None:
    """Fields that came with the former type and are unchanged (pkg/registry/core/service: dropTypeDependentFields)."""
    gone = list(_ADDRESSES) if after["type"] == "ExternalName" else []
    gone += ["internalTrafficPolicy"] if after["type"] == "ExternalName" else []
    gone += [] if _is_external(after) else ["externalTrafficPolicy", "healthCheckNodePort"]
    gone += [] if after["type"] == "LoadBalancer" else ["allocateLoadBalancerNodePorts", "loadBalancerClass"]
    for field in gone:
        if field in after and after[field] == before.get(field):
            del after[field]
    numbers = {port.get("nodePort") for port in before.get("ports") or []}
    for port in after.get("ports") or [] if not _is_external(after) else []:
        if port.get("nodePort") in numbers:
            port.pop("nodePort", None)


def _allocate(service: Object, store: Store) -> None:
    """Addresses and ports of nodes, unless the Service is refused anyway.

    Raises:
        ApiError: 422 for a number that is out of range or taken.
    """
    spec = service["spec"]
    if spec["type"] == "ExternalName" or validate_service(service):
        return
    others = [s["spec"] for s in store.objects("services") if s["metadata"]["uid"] != service["metadata"]["uid"]]
    faults = [*_allocate_address(spec, {other.get("clusterIP") for other in others})]
    if _is_external(spec) and spec.get("allocateLoadBalancerNodePorts", True):
        taken = {port.get("nodePort") for other in others for port in other.get("ports") or []}
        faults += _allocate_ports(spec["ports"], taken)
    if faults:
        raise errors.invalid("Service", "", service["metadata"].get("name", ""), faults)


def _allocate_address(spec: Object, taken: Iterable[str | None]) -> Iterator[FieldError]:
    address = spec.get("clusterIP")
    if not address:
        free = (str(_RANGE[number]) for number in range(10, _RANGE.num_addresses - 1))
        address = next(each for each in free if each not in taken)
    elif address != "None":
        fault = ""
        if ip_address(address) not in _RANGE:
            fault = f"the provided IP ({address}) is not in the valid range. The range of valid IPs is {_RANGE}"
        elif address in taken:
            fault = "provided IP is already allocated"
        if fault:
            yield bad_value("spec.clusterIPs", [address], f"failed to allocate IP {address}: {fault}")
    spec.update(clusterIP=address, clusterIPs=[address])
    both = address == "None" and not spec.get("selector")
    spec.setdefault("ipFamilies", ["IPv4", "IPv6"] if both else ["IPv4"])
    spec.setdefault("ipFamilyPolicy", "RequireDualStack" if both else "SingleStack")


def _allocate_ports(ports: list[Object], taken: set[int | None]) -> Iterator[FieldError]:
    for place, port in enumerate(ports):
        number, path = port.get("nodePort"), f"spec.ports[{place}].nodePort"
        if not number:
            wanted = {port.get("nodePort") for port in ports}
            port["nodePort"] = next(each for each in _NODE_PORTS if each not in taken | wanted)
        elif number not in _NODE_PORTS:
            first, last = _NODE_PORTS[0], _NODE_PORTS[-1]
            detail = f"provided port is not in the valid range. The range of valid ports is {first}-{last}"
            yield bad_value(path, number, detail)
        elif number in taken:
            yield bad_value(path, number, "provided port is already allocated")


def _validate_update(new: Object, old: Object) -> list[FieldError]:
    before, after = old["spec"].get("clusterIP"), new["spec"].get("clusterIP")
    fixed = "ExternalName" not in (old["spec"]["type"], new["spec"]["type"])
    if fixed and before and after != before:
        return [bad_value("spec.clusterIPs[0]", [after], "may not change once set")]
    return []


def _ports(service: Object) -> str:
    ports = service["spec"].get("ports") or []
    return ",".join(map(_port, ports)) or "<none>"


def _port(port: Object) -> str:
    on_nodes = f":{port['nodePort']}" if port.get("nodePort") else ""
    return f"{port['port']}{on_nodes}/{port['protocol']}"


def _external(service: Object) -> str:
    spec = service["spec"]
    addresses = ",".join(spec.get("externalIPs") or [])
    if spec["type"] == "ExternalName":
        return str(spec["externalName"])
    return addresses or ("<pending>" if spec["type"] == "LoadBalancer" else "<none>")


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
        prepare_update=_prepare_update,
        validate=validate_service,
        validate_update=_validate_update,
        columns=(
            NAME,
            Column("Type", lambda s: s["spec"]["type"]),
            Column("Cluster-IP", lambda s: s["spec"].get("clusterIP") or "<none>"),
            Column("External-IP", _external),
            Column("Port(s)", _ports),
            AGE,
            Column("Selector", _selector, priority=1),
        ),
    ),
)
