"""Faults of a Service that the server refuses (pkg/apis/core/validation: ValidateService)."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import (
    PORTS,
    FieldError,
    Object,
    Shown,
    bad_value,
    duplicate,
    forbidden_field,
    in_range,
    not_supported,
    one_of,
    required,
)
from kubetwin.model.go_types import go_text
from kubetwin.model.names import (
    dns_label,
    dns_subdomain,
    follows,
    ip_address_fault,
    port_name,
    qualified_name,
    validate_labels,
)

_AFFINITIES = ("ClientIP", "None")
_POLICIES = ("Cluster", "Local")
_PROTOCOLS = ("SCTP", "TCP", "UDP")
_TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_KUBELET_PORT = 10250
_LONGEST_AFFINITY_SECONDS = 86400


def validate_service(service: Object) -> list[FieldError]:
    """Faults in the order of the server's own checks."""
    spec = service["spec"]
    return [
        *_by_type(spec),
        *_ports(spec),
        *validate_labels(spec.get("selector"), "spec.selector"),
        *_affinity(spec),
        *_addresses(spec),
        *_types(spec),
        *_repeated_ports(spec),
        *_traffic(spec),
    ]


def _by_type(spec: Object) -> Iterator[FieldError]:
    headless, kind = spec.get("clusterIP") == "None", spec["type"]
    if not spec.get("ports") and not headless and kind != "ExternalName":
        yield required("spec.ports")
    for place, port in enumerate(spec.get("ports") or [] if kind == "LoadBalancer" else []):
        if port.get("port") == _KUBELET_PORT:
            detail = f"may not expose port {_KUBELET_PORT} externally since it is used by kubelet"
            yield bad_value(f"spec.ports[{place}]", _KUBELET_PORT, detail)
    if headless and kind in ("LoadBalancer", "NodePort"):
        yield bad_value("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {kind} services")
    if kind == "ExternalName":
        for field in ("clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(field):
                yield forbidden_field(f"spec.{field}", "may not be set for ExternalName services")
        name = spec.get("externalName", "").removesuffix(".")
        if not name:
            yield required("spec.externalName")
        elif fault := dns_subdomain(name):
            yield bad_value("spec.externalName", name, fault)


def _ports(spec: Object) -> Iterator[FieldError]:
    ports, seen = spec.get("ports") or [], set[str]()
    for place, port in enumerate(ports):
        path, name = f"spec.ports[{place}]", port.get("name", "")
        if not name and len(ports) > 1:
            yield required(f"{path}.name")
        elif name:
            yield from follows(dns_label, f"{path}.name", name)
            if name in seen:
                yield duplicate(f"{path}.name", name)
            seen.add(name)
        yield from in_range(f"{path}.port", port.get("port", 0), *PORTS)
        yield from one_of(f"{path}.protocol", port["protocol"], _PROTOCOLS)
        target, where = port["targetPort"], f"{path}.targetPort"
        yield from in_range(where, target, *PORTS) if isinstance(target, int) else follows(port_name, where, target)
        if (protocol := port.get("appProtocol")) is not None and (fault := qualified_name(protocol)):
            yield bad_value(f"{path}.appProtocol", protocol, fault)


def _affinity(spec: Object) -> Iterator[FieldError]:
    kind, path = spec["sessionAffinity"], "spec.sessionAffinityConfig"
    config: Object | None = spec.get("sessionAffinityConfig")
    if kind not in _AFFINITIES:
        yield not_supported("spec.sessionAffinity", kind, _AFFINITIES)
    elif kind == "None" and config is not None:
        yield forbidden_field(path, "must not be set when session affinity is None")
    elif kind == "ClientIP" and config is not None:
        seconds = config["clientIP"]["timeoutSeconds"]
        if not 0 < seconds <= _LONGEST_AFFINITY_SECONDS:
            detail = f"must be greater than 0 and less than {_LONGEST_AFFINITY_SECONDS}"
            yield bad_value(f"{path}.clientIP.timeoutSeconds", seconds, detail)


def _addresses(spec: Object) -> Iterator[FieldError]:
    for field in ("clusterIPs", "externalIPs"):
        for place, address in enumerate(spec.get(field) or []):
            fault = ip_address_fault(address)
            if fault and (field, place, address) != ("clusterIPs", 0, "None"):
                yield bad_value(f"spec.{field}[{place}]", address, fault)


def _types(spec: Object) -> Iterator[FieldError]:
    yield from one_of("spec.type", spec["type"], _TYPES)
    for place, port in enumerate(spec.get("ports") or [] if spec["type"] == "ClusterIP" else []):
        if port.get("nodePort"):
            yield forbidden_field(f"spec.ports[{place}].nodePort", "may not be used when `type` is 'ClusterIP'")


def _repeated_ports(spec: Object) -> Iterator[FieldError]:
    ports = spec.get("ports") or []
    for field in ("nodePort", "port"):
        seen: set[tuple[str, int]] = set()
        for place, port in enumerate(ports):
            number, path = port.get(field, 0), f"spec.ports[{place}]"
            key = (port["protocol"], number)
            if key in seen and number:
                shown = Shown(go_text({"protocol": port["protocol"], "port": number}, "ServicePort"))
                yield duplicate(f"{path}.nodePort", number) if field == "nodePort" else duplicate(path, shown)
            seen.add(key)


def _traffic(spec: Object) -> Iterator[FieldError]:
    external = spec["type"] in ("LoadBalancer", "NodePort")
    if (policy := spec.get("externalTrafficPolicy")) is not None:
        if not external and not spec.get("externalIPs"):
            detail = "may only be set for externally-accessible services"
            yield bad_value("spec.externalTrafficPolicy", policy, detail)
        elif policy not in _POLICIES:
            yield not_supported("spec.externalTrafficPolicy", policy, _POLICIES)
    if (policy := spec.get("internalTrafficPolicy")) is not None and policy not in _POLICIES:
        yield not_supported("spec.internalTrafficPolicy", policy, _POLICIES)
