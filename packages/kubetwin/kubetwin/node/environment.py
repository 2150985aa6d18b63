"""The environment of a container, built from its manifest as the kubelet builds it."""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Mapping
from typing import Any, Protocol

from kubetwin.model.quantity import parse_quantity
from kubetwin.node.expansion import expand
from kubetwin.node.rewriting import LOOPBACK

_SUBSCRIPT = re.compile(r"metadata\.(labels|annotations)\['([^']*)'\]")
_VARIABLE_NAME = re.compile(r"[-._a-zA-Z][-._a-zA-Z0-9]*")


class ContainerConfigError(Exception):
    """A container cannot be made yet: something that its manifest names is missing or wrong.

    The text is Kubernetes' own, for `state.waiting.message`.
    """


class ConfigSource(Protocol):
    """Reads the ConfigMaps and Secrets of a namespace."""

    def config_map(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The ConfigMap, or None if it does not exist."""

    def secret(self, namespace: str, name: str) -> dict[str, Any] | None:
        """The Secret, or None if it does not exist."""


def container_environment(
    container: Mapping[str, Any],
    pod: Mapping[str, Any],
    source: ConfigSource,
    allocatable: Mapping[str, str],
) -> dict[str, str]:
    """The variables of a container's manifest, in its order.

    Args:
        container: The container's manifest.
        pod: The pod that holds it.
        source: Reader of ConfigMaps and Secrets.
        allocatable: The node's resources, which stand in for limits that a container does not set.

    Raises:
        ContainerConfigError: If a ConfigMap, a Secret or a key that is not optional does not exist.
    """
    namespace = pod["metadata"]["namespace"]
    variables: dict[str, str] = {}
    for entry in container.get("envFrom") or []:
        variables.update(_variables_from(entry, namespace, source))
    for entry in container.get("env") or []:
        if "valueFrom" in entry:
            value = _referenced_value(entry["valueFrom"], container, pod, source, allocatable)
            if value is None:
                continue
        else:
            value = expand(entry.get("value") or "", variables)
        variables[entry["name"]] = value
    return variables


def read_key(kind: str, reference: Mapping[str, Any], key: str, namespace: str, source: ConfigSource) -> bytes | None:
    """The bytes under one key of a ConfigMap or Secret; None if it is missing and marked as optional.

    Args:
        kind: `configmap` or `secret`, as Kubernetes writes it in its messages.
        reference: Reference to the object: `name` and perhaps `optional`.
        key: The key to read.
        namespace: Namespace of the object.
        source: Reader of ConfigMaps and Secrets.

    Raises:
        ContainerConfigError: If it is missing and not optional.
    """
    content = read_content(kind, reference, namespace, source)
    if content is None or key in content:
        return None if content is None else content[key]
    if reference.get("optional"):
        return None
    owner = "ConfigMap" if kind == "configmap" else "Secret"
    raise ContainerConfigError(f"couldn't find key {key} in {owner} {namespace}/{reference.get('name')}")


def read_content(
    kind: str, reference: Mapping[str, Any], namespace: str, source: ConfigSource
) -> dict[str, bytes] | None:
    """Every key of a ConfigMap or Secret; None if it is missing and marked as optional.

    Raises:
        ContainerConfigError: If it is missing and not optional.
    """
    name = reference.get("name") or reference.get("secretName") or ""
    read = source.config_map if kind == "configmap" else source.secret
    found = read(namespace, name)
    if found is None:
        if reference.get("optional"):
            return None
        raise ContainerConfigError(f'{kind} "{name}" not found')
    if kind == "secret":
        return {key: base64.b64decode(value) for key, value in (found.get("data") or {}).items()}
    content = {key: str(value).encode() for key, value in (found.get("data") or {}).items()}
    content.update({key: base64.b64decode(value) for key, value in (found.get("binaryData") or {}).items()})
    return content


def field_value(path: str, pod: Mapping[str, Any]) -> str:
    """The value of a `fieldRef` of the pod.

    Raises:
        ContainerConfigError: If the path is not one that Kubernetes offers.
    """
    metadata, spec = pod["metadata"], pod.get("spec") or {}
    subscript = _SUBSCRIPT.fullmatch(path)
    if subscript:
        return str((metadata.get(subscript[1]) or {}).get(subscript[2], ""))
    fields = {
        "metadata.name": metadata.get("name"),
        "metadata.namespace": metadata.get("namespace"),
        "metadata.uid": metadata.get("uid"),
        "spec.nodeName": spec.get("nodeName"),
        "spec.serviceAccountName": spec.get("serviceAccountName"),
        "status.podIP": LOOPBACK,
        "status.podIPs": LOOPBACK,
        "status.hostIP": LOOPBACK,
        "status.hostIPs": LOOPBACK,
    }
    if path in fields:
        return fields[path] or ""
    if path in ("metadata.labels", "metadata.annotations"):
        values = metadata.get(path.removeprefix("metadata.")) or {}
        return "\n".join(f'{key}="{value}"' for key, value in sorted(values.items()))
    raise ContainerConfigError(f"unsupported fieldPath: {path}")


def resource_value(
    reference: Mapping[str, Any],
    container: Mapping[str, Any],
    allocatable: Mapping[str, str],
) -> str:
    """The value of a `resourceFieldRef` of the container, in whole units of its divisor."""
    bound, _, resource = str(reference.get("resource", "")).partition(".")
    wanted = (container.get("resources") or {}).get(bound) or {}
    quantity = wanted.get(resource, allocatable.get(resource, "0") if bound == "limits" else "0")
    return str(whole_units(quantity, reference.get("divisor") or "1"))


def whole_units(quantity: str | int, divisor: str = "1") -> int:
    """A quantity divided by `divisor` and rounded up; a divisor of zero stands for one."""
    return math.ceil(parse_quantity(quantity) / (parse_quantity(divisor) or 1))


def _variables_from(entry: Mapping[str, Any], namespace: str, source: ConfigSource) -> dict[str, str]:
    prefix = entry.get("prefix") or ""
    if "configMapRef" in entry:
        content = read_content("configmap", entry["configMapRef"], namespace, source)
    else:
        content = read_content("secret", entry.get("secretRef") or {}, namespace, source)
    return {
        prefix + key: value.decode(errors="replace")
        for key, value in (content or {}).items()
        if _VARIABLE_NAME.fullmatch(prefix + key)
    }


def _referenced_value(
    reference: Mapping[str, Any],
    container: Mapping[str, Any],
    pod: Mapping[str, Any],
    source: ConfigSource,
    allocatable: Mapping[str, str],
) -> str | None:
    if "fieldRef" in reference:
        return field_value(reference["fieldRef"]["fieldPath"], pod)
    if "resourceFieldRef" in reference:
        return resource_value(reference["resourceFieldRef"], container, allocatable)
    kind, name = ("configmap", "configMapKeyRef") if "configMapKeyRef" in reference else ("secret", "secretKeyRef")
    selector = reference.get(name)
    if selector is None:
        raise ContainerConfigError(f"unsupported valueFrom: {', '.join(reference)}")
    value = read_key(kind, selector, selector["key"], pod["metadata"]["namespace"], source)
    return None if value is None else value.decode(errors="replace")
