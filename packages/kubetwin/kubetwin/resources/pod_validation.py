"""Validation of pods and pod templates."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import (
    AT_LEAST_ZERO,
    MOST_INT32,
    FieldError,
    Object,
    Shown,
    bad_value,
    duplicate,
    forbidden_field,
    in_range,
    one_of,
    required,
)
from kubetwin.model.go_types import go_text
from kubetwin.model.names import dns_label, dns_subdomain, follows, ip_address_fault, qualified_name
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
    yield from one_of(f"{path}.restartPolicy", spec["restartPolicy"], ("Always", "OnFailure", "Never"))
    policies = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    yield from one_of(f"{path}.dnsPolicy", spec["dnsPolicy"], policies)
    if spec["terminationGracePeriodSeconds"] < 0:
        yield bad_value(f"{path}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"], AT_LEAST_ZERO)
    yield from in_range(f"{path}.activeDeadlineSeconds", spec.get("activeDeadlineSeconds"), 1, MOST_INT32)
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
    yield from one_of(f"{path}.os.name", system, ("linux", "windows"))


def _ports_of_the_host(spec: Object, path: str) -> Iterator[FieldError]:
    """On its host's network, a container has its ports there (validateHostNetwork); a template may leave them out."""
    for place, container in enumerate(spec.get("containers") or [] if spec.get("hostNetwork") else []):
        for number, port in enumerate(container.get("ports") or []):
            if port.get("hostPort") and port["hostPort"] != port.get("containerPort"):
                where = f"{path}.containers[{place}].ports[{number}].hostPort"
                yield bad_value(where, port["hostPort"], "must match `containerPort` when `hostNetwork` is true")


def _users(context: Object, path: str) -> Iterator[FieldError]:
    for field in ("runAsUser", "runAsGroup", "fsGroup"):
        yield from in_range(f"{path}.{field}", context.get(field), 0, MOST_INT32)
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
        yield from follows(ip_address_fault, f"{where}.nameservers[{place}]", server)
    for place, alias in enumerate(spec.get("hostAliases") or []):
        yield from follows(ip_address_fault, f"{path}.hostAliases[{place}].ip", alias.get("ip", ""))
        for number, name in enumerate(alias.get("hostnames") or []):
            yield from follows(dns_subdomain, f"{path}.hostAliases[{place}].hostnames[{number}]", name)


def _gates(spec: Object, path: str) -> Iterator[FieldError]:
    """Gates of scheduling and of readiness."""
    seen: set[str] = set()
    for place, gate in enumerate(spec.get("schedulingGates") or []):
        name, where = gate.get("name", ""), f"{path}.schedulingGates[{place}]"
        yield from follows(qualified_name, where, name)
        if name in seen:
            yield duplicate(where, name)
        seen.add(name)
    for place, gate in enumerate(spec.get("readinessGates") or []):
        kind = gate.get("conditionType", "")
        yield from follows(qualified_name, f"{path}.readinessGates[{place}].conditionType", kind)


def validate_pod_update(new: Object, old: Object) -> list[FieldError]:
    """Faults of the pod as it shall be, then those of the change."""
    spec = new["spec"]
    return [*validate_pod_spec(spec, "spec"), *pod_update_faults(new, old)]
