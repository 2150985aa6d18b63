"""Faults of a container that the server refuses (pkg/apis/core/validation)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubetwin.model.errors import (
    AT_LEAST_ZERO,
    PORTS,
    FieldError,
    Object,
    bad_value,
    duplicate,
    forbidden_field,
    in_range,
    missing_reference,
    not_supported,
    one_of,
    required,
)
from kubetwin.model.names import config_key, follows, port_name, qualified_name, validate_entry_name
from kubetwin.model.quantity import parse_quantity

_ONE_SOURCE = "may not have more than one field specified at a time"
_SOURCES = ("fieldRef", "resourceFieldRef", "configMapKeyRef", "secretKeyRef")
_FIELDS_OF_ENVIRONMENT = (
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
)
_OTHER_FIELDS = ("metadata.annotations", "metadata.labels", "spec.restartPolicy", "spec.schedulerName", "status.phase")
_AMOUNTS = tuple(f"{kind}.{name}" for kind in ("limits", "requests") for name in ("cpu", "ephemeral-storage", "memory"))
_OPTIONS = {
    "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
    "terminationMessagePolicy": ("FallbackToLogsOnError", "File"),
}
_STANDARD = ("cpu", "memory", "ephemeral-storage")
_HANDLERS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PROBE_NUMBERS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")


def validate_container(container: Object, path: str, volumes: set[Any], names: set[str]) -> Iterator[FieldError]:
    """Faults of one container.

    Args:
        container: With its defaults.
        path: Its place in the pod.
        volumes: Names of the pod's volumes.
        names: Names of the containers before; this one's is added.
    """
    yield from validate_entry_name(container.get("name", ""), names, path)
    image = container.get("image", "")
    if not image:
        yield required(f"{path}.image")
    elif image != image.strip():
        yield bad_value(f"{path}.image", image, "must not have leading or trailing whitespace")
    yield from _ports(container.get("ports") or [], f"{path}.ports")
    yield from _environment(container.get("env") or [], f"{path}.env")
    yield from _environment_sources(container.get("envFrom") or [], f"{path}.envFrom")
    yield from _mounts(container.get("volumeMounts") or [], f"{path}.volumeMounts", volumes)
    yield from _probes(container, path)
    for field, options in _OPTIONS.items():
        yield from one_of(f"{path}.{field}", container[field], options)
    yield from _resources(container["resources"], f"{path}.resources")


def _ports(ports: list[Object], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for place, port in enumerate(ports):
        name, where = port.get("name"), f"{path}[{place}]"
        if name:
            if fault := port_name(name):
                yield bad_value(f"{where}.name", name, fault)
            elif name in seen:
                yield duplicate(f"{where}.name", name)
            seen.add(name)
        number = port.get("containerPort", 0)
        if number == 0:
            yield required(f"{where}.containerPort")
        else:
            yield from in_range(f"{where}.containerPort", number, *PORTS)
        yield from in_range(f"{where}.hostPort", port.get("hostPort") or None, *PORTS)
        yield from one_of(f"{where}.protocol", port["protocol"], ("SCTP", "TCP", "UDP"))


def _environment(variables: list[Object], path: str) -> Iterator[FieldError]:
    for place, variable in enumerate(variables):
        if not variable.get("name"):
            yield required(f"{path}[{place}].name")
        elif "=" in variable["name"]:
            yield bad_value(
                f"{path}[{place}].name", variable["name"], "a valid environment variable name must not contain '='"
            )
        if "valueFrom" in variable:
            where = f"{path}[{place}].valueFrom"
            yield from _value_source(variable["valueFrom"], where)
            if variable.get("value"):
                yield bad_value(where, "", "may not be specified when `value` is not empty")


def _value_source(source: Object, path: str) -> Iterator[FieldError]:
    if "fieldRef" in source:
        yield from _field_reference(source["fieldRef"].get("fieldPath", ""), f"{path}.fieldRef.fieldPath")
    if "resourceFieldRef" in source:
        amount = source["resourceFieldRef"].get("resource", "")
        where = f"{path}.resourceFieldRef.resource"
        if not amount:
            yield required(where)
        elif amount not in _AMOUNTS and "hugepages-" not in amount:
            yield not_supported(where, amount, _AMOUNTS)
    for kind in ("configMapKeyRef", "secretKeyRef"):
        if kind in source:
            yield from _key_reference(source[kind], f"{path}.{kind}")
    count = sum(kind in source for kind in (*_SOURCES, "fileKeyRef"))
    if count == 0:
        yield bad_value(
            path, "", "must specify one of: `fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
        )
    elif count > 1:
        yield bad_value(path, "", _ONE_SOURCE)


def _field_reference(field: str, path: str) -> Iterator[FieldError]:
    if not field:
        yield required(path)
        return
    matched = re.fullmatch(r"(metadata\.(?:annotations|labels))\['(.*)'\]", field)
    if matched:
        if fault := qualified_name(matched[2].lower()):
            yield bad_value(path, field, fault)
    elif field not in (*_FIELDS_OF_ENVIRONMENT, *_OTHER_FIELDS):
        yield bad_value(path, field, f"error converting fieldPath: field label not supported: {field}")
    elif field in _OTHER_FIELDS:
        yield not_supported(path, field, _FIELDS_OF_ENVIRONMENT)


def _key_reference(reference: Object, path: str) -> Iterator[FieldError]:
    if not reference.get("name"):
        yield required(f"{path}.name")
    if not reference.get("key"):
        yield required(f"{path}.key")
    elif fault := config_key(reference["key"]):
        yield bad_value(f"{path}.key", reference["key"], fault)


def _environment_sources(sources: list[Object], path: str) -> Iterator[FieldError]:
    for place, source in enumerate(sources):
        kinds = [kind for kind in ("configMapRef", "secretRef") if kind in source]
        if "=" in source.get("prefix", ""):
            detail = "a valid environment variable name must not contain '='"
            yield bad_value(f"{path}[{place}].prefix", source["prefix"], detail)
        for kind in kinds:
            if not source[kind].get("name"):
                yield required(f"{path}[{place}].{kind}.name")
        if not kinds:
            yield bad_value(path, "", "must specify one of: `configMapRef` or `secretRef`")
        elif len(kinds) > 1:
            yield bad_value(path, "", _ONE_SOURCE)


def _probes(container: Object, path: str) -> Iterator[FieldError]:
    lifecycle = container.get("lifecycle") or {}
    for hook in ("postStart", "preStop"):
        if hook in lifecycle:
            yield from _handler(lifecycle[hook], f"{path}.lifecycle.{hook}")
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        probe, where = container.get(name), f"{path}.{name}"
        if probe is None:
            continue
        yield from _handler(probe, where)
        for field in _PROBE_NUMBERS:
            if probe.get(field, 0) < 0:
                yield bad_value(f"{where}.{field}", probe[field], AT_LEAST_ZERO)
        if probe.get("terminationGracePeriodSeconds", 1) <= 0:
            seconds = probe["terminationGracePeriodSeconds"]
            yield bad_value(f"{where}.terminationGracePeriodSeconds", seconds, "must be greater than 0")
        if name != "readinessProbe" and probe.get("successThreshold", 1) != 1:
            yield bad_value(f"{where}.successThreshold", probe["successThreshold"], "must be 1")


def _handler(handler: Object, path: str) -> Iterator[FieldError]:
    kinds = [kind for kind in _HANDLERS if kind in handler]
    if not kinds:
        yield required(path, "must specify a handler type")
        return
    if "exec" in handler and not handler["exec"].get("command"):
        yield required(f"{path}.exec.command")
    for kind in ("httpGet", "tcpSocket", "grpc"):
        if kind in handler:
            yield from _port_of_handler(handler[kind].get("port", 0), f"{path}.{kind}.port")
    scheme = (handler.get("httpGet") or {}).get("scheme", "HTTP")
    yield from one_of(f"{path}.httpGet.scheme", scheme, ("HTTP", "HTTPS"))
    for kind in kinds[1:]:
        yield forbidden_field(f"{path}.{kind}", "may not specify more than 1 handler type")


def _port_of_handler(port: Any, path: str) -> Iterator[FieldError]:
    yield from in_range(path, port, *PORTS) if isinstance(port, int) else follows(port_name, path, port)


def _mounts(mounts: list[Object], path: str, volumes: set[Any]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for place, mount in enumerate(mounts):
        if not mount.get("name"):
            yield required(f"{path}[{place}].name")
        if mount.get("name") not in volumes:
            yield missing_reference(f"{path}[{place}].name", mount.get("name", ""))
        where = mount.get("mountPath", "")
        if not where:
            yield required(f"{path}[{place}].mountPath")
        elif where in seen:
            yield bad_value(f"{path}[{place}].mountPath", where, "must be unique")
        seen.add(where)
        sub_path = mount.get("subPath", "")
        if sub_path.startswith("/"):
            yield bad_value(f"{path}[{place}].subPath", sub_path, "must be a relative path")
        elif ".." in sub_path.split("/"):
            yield bad_value(f"{path}[{place}].subPath", sub_path, "must not contain '..'")


def is_extended(resource: str) -> bool:
    """Whether a resource is one of a device plugin (`aws.amazon.com/neuron`): whole and never overcommitted."""
    domain, slash, _ = resource.rpartition("/")
    return bool(slash) and not (domain == "kubernetes.io" or domain.endswith(".kubernetes.io"))


def _resources(resources: Object, path: str) -> Iterator[FieldError]:
    limits = resources.get("limits") or {}
    requests = resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in amounts.items():
            yield from _resource_name(name, f"{path}.{kind}[{name}]")
            if parse_quantity(amount) < 0:
                yield bad_value(f"{path}.{kind}[{name}]", amount, AT_LEAST_ZERO)
            elif is_extended(name) and parse_quantity(amount).denominator != 1:
                yield bad_value(f"{path}.{kind}[{name}]", amount, "must be an integer")
    for name, amount in requests.items():
        if is_extended(name) and name not in limits:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif is_extended(name) and parse_quantity(amount) != parse_quantity(limits[name]):
            yield bad_value(f"{path}.requests", amount, f"must be equal to {name} limit of {limits[name]}")
        elif name in limits and parse_quantity(amount) > parse_quantity(limits[name]):
            yield bad_value(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limits[name]}")


def _resource_name(name: str, path: str) -> Iterator[FieldError]:
    if fault := qualified_name(name):
        yield bad_value(path, name, fault)
    elif "/" not in name and name not in _STANDARD and not name.startswith("hugepages-"):
        yield bad_value(path, name, "must be a standard resource type or fully qualified")
        yield bad_value(path, name, "must be a standard resource for containers")
