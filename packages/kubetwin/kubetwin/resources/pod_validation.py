"""Validation of pods and pod templates."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import (
    AT_LEAST_ZERO,
    FieldError,
    Object,
    Shown,
    bad_value,
    duplicate,
    forbidden_field,
    not_supported,
    required,
)
from kubetwin.model.go_types import go_text
from kubetwin.model.names import dns_label, dns_subdomain, ip_address_fault, qualified_name
from kubetwin.resources.container_validation import validate_container
from kubetwin.resources.placement_validation import validate_placement
from kubetwin.resources.pod_updates import pod_update_faults
from kubetwin.resources.volume_validation import validate_volumes

_MOST_SERVERS = 3  # MaxDNSNameservers of pkg/apis/core/validation


def validate_pod(pod: Object) -> list[FieldError]:
    spec, faults = pod["spec"], [*validate_pod_spec(pod["spec"], "spec")]
    if spec.get("ephemeralContainers"):
        faults.append(forbidden_field("spec.ephemeralContainers", "cannot be set on create"))
    if spec.get("nodeName") and spec.get("schedulingGates"):
        faults.append(forbidden_field("spec.nodeName", "cannot be set until all schedulingGates have been cleared"))
    return faults


def validate_pod_spec(spec: Object, path: str) -> Iterator[FieldError]:
    """Faults of a pod's spec, in the order of the server's own checks."""
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    yield from validate_volumes(spec.get("volumes") or [], f"{path}.volumes")
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    names: set[str] = set()
    for group in ("containers", "initContainers"):
        for place, container in enumerate(spec.get(group) or []):
            where = f"{path}.{group}[{place}]"
            yield from validate_container(container, where, volumes, names)
            yield from _users(container.get("securityContext") or {}, f"{where}.securityContext")
            if group == "initContainers" and container.get("restartPolicy") != "Always":
                detail = "may not be set for init containers without restartPolicy=Always"
                for field in ("lifecycle", "livenessProbe", "readinessProbe", "startupProbe"):
                    if field in container:
                        yield forbidden_field(f"{where}.{field}", detail)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        yield not_supported(f"{path}.restartPolicy", spec["restartPolicy"], ("Always", "OnFailure", "Never"))
    policies = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    if spec["dnsPolicy"] not in policies:
        yield not_supported(f"{path}.dnsPolicy", spec["dnsPolicy"], policies)
    if spec["terminationGracePeriodSeconds"] < 0:
        yield bad_value(f"{path}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"], AT_LEAST_ZERO)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield bad_value(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    for field in ("hostname", "subdomain"):
        if spec.get(field) and (fault := dns_label(spec[field])):
            yield bad_value(f"{path}.{field}", spec[field], fault)
    yield from _names(spec, path)
    yield from _ports_of_the_host(spec, path)
    yield from _users(spec.get("securityContext") or {}, f"{path}.securityContext")
    yield from validate_placement(spec, path)
    yield from _networking(spec, path)
    yield from _gates(spec, path)


def _names(spec: Object, path: str) -> Iterator[FieldError]:
    if spec.get("nodeName") and (fault := dns_subdomain(spec["nodeName"])):
        yield bad_value(f"{path}.nodeName", spec["nodeName"], fault)
    system = (spec.get("os") or {}).get("name", "linux")
    if system not in ("linux", "windows"):
        yield not_supported(f"{path}.os.name", system, ("linux", "windows"))


def _ports_of_the_host(spec: Object, path: str) -> Iterator[FieldError]:
    """On its host's network, a container has its ports there (validateHostNetwork); a template may leave them out."""
    for place, container in enumerate(spec.get("containers") or [] if spec.get("hostNetwork") else []):
        for number, port in enumerate(container.get("ports") or []):
            if port.get("hostPort") and port["hostPort"] != port.get("containerPort"):
                where = f"{path}.containers[{place}].ports[{number}].hostPort"
                yield bad_value(where, port["hostPort"], "must match `containerPort` when `hostNetwork` is true")


def _users(context: Object, path: str) -> Iterator[FieldError]:
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        number = context.get(field)
        if number is not None and not 0 <= number <= 2**31 - 1:
            yield bad_value(f"{path}.{field}", number, "must be between 0 and 2147483647, inclusive")
    if context.get("privileged") and context.get("allowPrivilegeEscalation") is False:
        detail = "cannot set `allowPrivilegeEscalation` to false and `privileged` to true"
        yield bad_value(path, Shown(go_text(context, "SecurityContext")), detail)


def _networking(spec: Object, path: str) -> Iterator[FieldError]:
    """Name servers and further lines of the hosts file."""
    given, config = spec.get("dnsConfig"), spec.get("dnsConfig") or {}
    servers, where = config.get("nameservers") or [], f"{path}.dnsConfig"
    if spec["dnsPolicy"] == "None" and given is None:
        yield required(where, "must provide `dnsConfig` when `dnsPolicy` is None")
    elif spec["dnsPolicy"] == "None" and not servers:
        yield required(f"{where}.nameservers", "must provide at least one DNS nameserver when `dnsPolicy` is None")
    if len(servers) > _MOST_SERVERS:
        yield bad_value(f"{where}.nameservers", servers, f"must not have more than {_MOST_SERVERS} nameservers")
    for place, server in enumerate(servers):
        if fault := ip_address_fault(server):
            yield bad_value(f"{where}.nameservers[{place}]", server, fault)
    for place, alias in enumerate(spec.get("hostAliases") or []):
        if fault := ip_address_fault(alias.get("ip", "")):
            yield bad_value(f"{path}.hostAliases[{place}].ip", alias.get("ip", ""), fault)
        for number, name in enumerate(alias.get("hostnames") or []):
            if fault := dns_subdomain(name):
                yield bad_value(f"{path}.hostAliases[{place}].hostnames[{number}]", name, fault)


def _gates(spec: Object, path: str) -> Iterator[FieldError]:
    """Gates of scheduling and of readiness."""
    seen: set[str] = set()
    for place, gate in enumerate(spec.get("schedulingGates") or []):
        name, where = gate.get("name", ""), f"{path}.schedulingGates[{place}]"
        if fault := qualified_name(name):
            yield bad_value(where, name, fault)
        if name in seen:
            yield duplicate(where, name)
        seen.add(name)
    for place, gate in enumerate(spec.get("readinessGates") or []):
        kind = gate.get("conditionType", "")
        if fault := qualified_name(kind):
            yield bad_value(f"{path}.readinessGates[{place}].conditionType", kind, fault)


def validate_pod_update(new: Object, old: Object) -> list[FieldError]:
    """Faults of the pod as it shall be, then those of the change."""
    spec = new["spec"]
    return [*validate_pod_spec(spec, "spec"), *pod_update_faults(new, old)]
