"""Validation of pods and pod templates."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

from kubetwin.model.errors import (
    FieldError,
    Object,
    bad_value,
    duplicate,
    forbidden_field,
    missing_reference,
    not_supported,
    required,
)
from kubetwin.model.names import dns_label
from kubetwin.model.quantity import parse_quantity

_AT_LEAST_ZERO = "must be greater than or equal to 0"
_ONLY = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def validate_pod(pod: Object) -> list[FieldError]:
    return list(validate_pod_spec(pod["spec"], "spec"))


def validate_pod_spec(spec: Object, path: str) -> Iterator[FieldError]:
    """Faults of a pod's spec, in the order of the server's own checks."""
    volumes = {volume.get("name") for volume in spec.get("volumes") or []}
    yield from _volumes(spec.get("volumes") or [], f"{path}.volumes")
    if not spec.get("containers"):
        yield required(f"{path}.containers")
    names: set[str] = set()
    for group in ("containers", "initContainers"):
        for place, container in enumerate(spec.get(group) or []):
            yield from _container(container, f"{path}.{group}[{place}]", volumes, names)
    if spec["restartPolicy"] not in ("Always", "OnFailure", "Never"):
        yield not_supported(f"{path}.restartPolicy", spec["restartPolicy"], ("Always", "OnFailure", "Never"))
    policies = ("ClusterFirstWithHostNet", "ClusterFirst", "Default", "None")
    if spec["dnsPolicy"] not in policies:
        yield not_supported(f"{path}.dnsPolicy", spec["dnsPolicy"], policies)
    if spec["terminationGracePeriodSeconds"] < 0:
        yield bad_value(f"{path}.terminationGracePeriodSeconds", spec["terminationGracePeriodSeconds"], _AT_LEAST_ZERO)
    deadline = spec.get("activeDeadlineSeconds")
    if deadline is not None and not 1 <= deadline <= 2**31 - 1:
        yield bad_value(f"{path}.activeDeadlineSeconds", deadline, "must be between 1 and 2147483647, inclusive")
    for field in ("hostname", "subdomain"):
        if spec.get(field) and (fault := dns_label(spec[field])):
            yield bad_value(f"{path}.{field}", spec[field], fault)
    yield from _tolerations(spec.get("tolerations") or [], f"{path}.tolerations")
    yield from _node_affinity((spec.get("affinity") or {}).get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity")


def _volumes(volumes: list[Object], path: str) -> Iterator[FieldError]:
    seen: set[str] = set()
    for place, volume in enumerate(volumes):
        name = volume.get("name", "")
        if not name:
            yield required(f"{path}[{place}].name")
        elif fault := dns_label(name):
            yield bad_value(f"{path}[{place}].name", name, fault)
        elif name in seen:
            yield duplicate(f"{path}[{place}].name", name)
        seen.add(name)
        if len(volume) > 2:
            source = sorted(set(volume) - {"name"})[1]
            yield forbidden_field(f"{path}[{place}].{source}", "may not specify more than 1 volume type")


def _container(container: Object, path: str, volumes: set[Any], names: set[str]) -> Iterator[FieldError]:
    name = container.get("name", "")
    if not name:
        yield required(f"{path}.name")
    elif fault := dns_label(name):
        yield bad_value(f"{path}.name", name, fault)
    elif name in names:
        yield duplicate(f"{path}.name", name)
    names.add(name)
    if not container.get("image"):
        yield required(f"{path}.image")
    for place, port in enumerate(container.get("ports") or []):
        number = port.get("containerPort", 0)
        if number == 0:
            yield required(f"{path}.ports[{place}].containerPort")
        elif not 1 <= number <= 65535:
            yield bad_value(f"{path}.ports[{place}].containerPort", number, "must be between 1 and 65535, inclusive")
    yield from _environment(container.get("env") or [], f"{path}.env")
    yield from _mounts(container.get("volumeMounts") or [], f"{path}.volumeMounts", volumes)
    supported = {
        "imagePullPolicy": ("Always", "IfNotPresent", "Never"),
        "terminationMessagePolicy": ("FallbackToLogsOnError", "File"),
    }
    for field, options in supported.items():
        if container[field] not in options:
            yield not_supported(f"{path}.{field}", container[field], options)
    yield from _resources(container["resources"], f"{path}.resources")


def _environment(variables: list[Object], path: str) -> Iterator[FieldError]:
    for place, variable in enumerate(variables):
        if not variable.get("name"):
            yield required(f"{path}[{place}].name")
        elif "=" in variable["name"]:
            yield bad_value(
                f"{path}[{place}].name", variable["name"], "a valid environment variable name must not contain '='"
            )
        if variable.get("value") and variable.get("valueFrom"):
            yield bad_value(f"{path}[{place}].valueFrom", "", "may not be specified when `value` is not empty")


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
            if parse_quantity(amount) < 0:
                yield bad_value(f"{path}.{kind}[{name}]", amount, _AT_LEAST_ZERO)
            elif is_extended(name) and parse_quantity(amount).denominator != 1:
                yield bad_value(f"{path}.{kind}[{name}]", amount, "must be an integer")
    for name, amount in requests.items():
        if is_extended(name) and name not in limits:
            yield required(f"{path}.limits", "Limit must be set for non overcommitable resources")
        elif is_extended(name) and parse_quantity(amount) != parse_quantity(limits[name]):
            yield bad_value(f"{path}.requests", amount, f"must be equal to {name} limit of {limits[name]}")
        elif name in limits and parse_quantity(amount) > parse_quantity(limits[name]):
            yield bad_value(f"{path}.requests", amount, f"must be less than or equal to {name} limit of {limits[name]}")


def _tolerations(tolerations: list[Object], path: str) -> Iterator[FieldError]:
    for place, toleration in enumerate(tolerations):
        operator = toleration.get("operator", "Equal")
        if operator not in ("Equal", "Exists"):
            yield not_supported(f"{path}[{place}].operator", operator, ("Equal", "Exists"))
        elif operator == "Exists" and toleration.get("value"):
            detail = "value must be empty when `operator` is 'Exists'"
            yield bad_value(f"{path}[{place}].operator", toleration["value"], detail)
        elif not toleration.get("key") and operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield bad_value(f"{path}[{place}].operator", operator, detail)


def _node_affinity(affinity: Object, path: str) -> Iterator[FieldError]:
    """Faults of requirements on fields of nodes. The server takes one value in each, and the field `metadata.name`."""
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}
    terms = [
        (f"requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms[{place}]", term)
        for place, term in enumerate(needed.get("nodeSelectorTerms") or [])
    ]
    wanted = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []
    terms += [
        (f"preferredDuringSchedulingIgnoredDuringExecution[{place}].preference", each.get("preference") or {})
        for place, each in enumerate(wanted)
    ]
    for name, term in terms:
        for place, requirement in enumerate(term.get("matchFields") or []):
            yield from _node_field(requirement, f"{path}.{name}.matchFields[{place}]")


def _node_field(requirement: Object, path: str) -> Iterator[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator not in ("In", "NotIn"):
        yield bad_value(f"{path}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{path}.values", detail)
    if requirement.get("key") != "metadata.name":
        yield bad_value(f"{path}.key", requirement.get("key", ""), "not a valid field selector key")


def validate_pod_update(new: Object, old: Object) -> list[FieldError]:
    """A pod's spec is fixed but for images, the deadline, more tolerations and scheduling gates."""
    before, after = old["spec"], new["spec"]
    lost = [t for t in before.get("tolerations") or [] if not _tolerated_as_before(t, after.get("tolerations") or [])]
    if lost:
        detail = "existing toleration can not be modified except its tolerationSeconds"
        return [forbidden_field("spec.tolerations", detail)]
    allowed = copy.deepcopy(after)
    for group in ("containers", "initContainers"):
        for mine, theirs in zip(allowed.get(group) or [], before.get(group) or [], strict=False):
            mine["image"] = theirs.get("image")
    for field in ("activeDeadlineSeconds", "tolerations", "schedulingGates"):
        allowed.pop(field, None)
        if field in before:
            allowed[field] = before[field]
    if allowed != before:
        return [forbidden_field("spec", _ONLY)]
    return []


def _tolerated_as_before(old: Object, new: list[Object]) -> bool:
    def same(toleration: Object) -> Object:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    return any(same(old) == same(toleration) for toleration in new)
