"""Validation of pods and pod templates."""

from __future__ import annotations

import copy
from collections.abc import Iterator

from kubetwin.model.errors import (
    AT_LEAST_ZERO,
    FieldError,
    Object,
    bad_value,
    duplicate,
    forbidden_field,
    not_supported,
    required,
)
from kubetwin.model.go_types import go_difference
from kubetwin.model.names import dns_label, dns_subdomain
from kubetwin.resources.container_validation import validate_container
from kubetwin.resources.placement_validation import validate_placement

_NEEDED = {
    "configMap": "name",
    "secret": "secretName",
    "hostPath": "path",
    "persistentVolumeClaim": "claimName",
}
"""The field without which a volume's source names nothing."""

_ONLY = (
    "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,"
    "`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),"
    "`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


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
    yield from _volumes(spec.get("volumes") or [], f"{path}.volumes")
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
        yield bad_value(path, context, detail)


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
        for source, field in _NEEDED.items():
            if source in volume and not volume[source].get(field):
                yield required(f"{path}[{place}].{source}.{field}")
        for source in ("configMap", "secret"):
            if source in volume:
                yield from _projection(volume[source], f"{path}[{place}].{source}")


def _projection(source: Object, path: str) -> Iterator[FieldError]:
    """Modes of files, and keys with the files that they become."""
    items = source.get("items") or []
    modes = [(f"{path}.defaultMode", source.get("defaultMode"))]
    modes += [(f"{path}.items[{place}].mode", item.get("mode")) for place, item in enumerate(items)]
    for where, mode in modes:
        if mode is not None and not 0 <= mode <= 0o777:
            yield bad_value(where, mode, "must be a number between 0 and 0777 (octal), both inclusive")
    for place, item in enumerate(items):
        if not item.get("key"):
            yield required(f"{path}.items[{place}].key")
        where, file = f"{path}.items[{place}].path", item.get("path", "")
        if not file:
            yield required(where)
        elif file.startswith("/"):
            yield bad_value(where, file, "must be a relative path")
        elif ".." in file.split("/"):
            yield bad_value(where, file, "must not contain '..'")


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
        changed = go_difference(_as_recorded(before), _as_recorded(allowed), "PodSpec")
        return [forbidden_field("spec", f"{_ONLY}\n{changed}")]
    return []


def _as_recorded(spec: Object) -> Object:
    """A spec with the source that the recorded server adds to the volume of the token, so that lines have its numbers.

    That server is built from OpenShift's tree (the recordings' FORMAT.md); plain Kubernetes has 18 lines less there.
    """
    item = {"key": "service-ca.crt", "path": "service-ca.crt"}
    added = {"configMap": {"name": "openshift-service-ca.crt", "items": [item]}}
    spec = copy.deepcopy(spec)
    for volume in spec.get("volumes") or []:
        if volume["name"].startswith("kube-api-access-") and "projected" in volume:
            volume["projected"]["sources"].append(added)
    return spec


def _tolerated_as_before(old: Object, new: list[Object]) -> bool:
    def same(toleration: Object) -> Object:
        return {key: value for key, value in toleration.items() if key != "tolerationSeconds"}

    return any(same(old) == same(toleration) for toleration in new)
