"""Kinds that limit others: quotas, disruption budgets, priorities, network policies; and accounts, roles and their
bindings.

Network policies are stored and change nothing, as in a cluster whose network plugin does not enforce them: pods are
processes of one machine.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from kubetwin.model.errors import (
    AT_LEAST_ZERO,
    FieldError,
    Object,
    bad_value,
    forbidden_field,
    negative_numbers,
    not_supported,
    required,
)
from kubetwin.model.names import dns_subdomain, path_segment
from kubetwin.resources.quota_validation import validate_quota, validate_quota_update
from kubetwin.resources.resource import AGE, NAME, STATUS, Column, Resource, Subresource
from kubetwin.resources.selector_validation import selector_faults

_HIGHEST_PRIORITY = 1_000_000_000
_PREEMPTION = ("Never", "PreemptLowerPriority")
_RBAC = "rbac.authorization.k8s.io"


def _spec(obj: Object) -> None:
    obj.setdefault("spec", {})


def _default_priority(priority: Object) -> None:
    priority.setdefault("preemptionPolicy", "PreemptLowerPriority")
    priority.setdefault("value", 0)


def _validate_priority(priority: Object) -> list[FieldError]:
    """Names and values beyond those of users are the system's (pkg/apis/scheduling/validation)."""
    name, faults = priority["metadata"].get("name", ""), []
    if name.startswith("system-"):
        detail = "priority class names with 'system-' prefix are reserved for system use only"
        faults.append(forbidden_field("metadata.name", detail))
    elif priority["value"] > _HIGHEST_PRIORITY:
        detail = f"maximum allowed value of a user defined priority is {_HIGHEST_PRIORITY}"
        faults.append(forbidden_field("value", detail))
    if priority["preemptionPolicy"] not in _PREEMPTION:
        faults.append(not_supported("preemptionPolicy", priority["preemptionPolicy"], _PREEMPTION))
    return faults


def _validate_priority_update(new: Object, old: Object) -> list[FieldError]:
    return [forbidden_field("value", "may not be changed in an update.")] if new["value"] != old["value"] else []


def _validate_budget(budget: Object) -> list[FieldError]:
    """One of two measures (pkg/apis/policy/validation: ValidatePodDisruptionBudgetSpec)."""
    spec, faults = budget["spec"], list[FieldError]()
    for field in ("minAvailable", "maxUnavailable"):
        faults += _share_faults(spec.get(field), f"spec.{field}")
    faults += selector_faults(spec.get("selector"), "spec.selector")
    if spec.get("minAvailable") is None or spec.get("maxUnavailable") is None:
        return faults
    fields = ("MinAvailable", "Selector", "MaxUnavailable", "UnhealthyPodEvictionPolicy")  # of the server's own type
    shown = json.dumps({name: spec.get(f"{name[0].lower()}{name[1:]}") for name in fields}, separators=(",", ":"))
    detail = "minAvailable and maxUnavailable cannot be both set"
    return [FieldError("FieldValueInvalid", "spec", f"Invalid value: {shown}: {detail}"), *faults]


def _share_faults(share: int | str | None, path: str) -> Iterator[FieldError]:
    """Faults of a number of pods or a percentage of them."""
    if isinstance(share, int) and share < 0:
        yield bad_value(path, share, AT_LEAST_ZERO)
    if not isinstance(share, str):
        return
    if not re.fullmatch("[0-9]+%", share):
        text = "a valid percent string must be a numeric string followed by an ending '%'"
        yield bad_value(path, share, f"{text} (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')")
    elif int(share[:-1]) > 100:
        yield bad_value(path, share, "must not be greater than 100%")


def _validate_budget_status(budget: Object) -> list[FieldError]:
    counts = ("disruptionsAllowed", "currentHealthy", "desiredHealthy", "expectedPods")
    return negative_numbers("status", budget["status"], counts)


def _default_network_policy(policy: Object) -> None:
    spec = policy.setdefault("spec", {})
    spec.setdefault("policyTypes", ["Ingress", "Egress"] if spec.get("egress") else ["Ingress"])
    for rule in (*spec.get("ingress", ()), *spec.get("egress", ())):
        for port in rule.get("ports", ()):
            port.setdefault("protocol", "TCP")


def _default_binding(binding: Object) -> None:
    reference = binding.setdefault("roleRef", {})
    reference.setdefault("apiGroup", _RBAC)
    for subject in binding.get("subjects") or []:
        if subject.get("kind") in ("User", "Group"):
            subject.setdefault("apiGroup", _RBAC)


def _validate_binding(binding: Object) -> list[FieldError]:
    """Faults of the role and of the subjects (pkg/apis/rbac/validation: ValidateRoleBinding)."""
    reference, namespaced = binding["roleRef"], bool(binding["metadata"].get("namespace"))
    kinds = ("Role", "ClusterRole") if namespaced else ("ClusterRole",)
    faults: list[FieldError] = []
    if reference["apiGroup"] != _RBAC:
        faults.append(not_supported("roleRef.apiGroup", reference["apiGroup"], (_RBAC,)))
    if reference.get("kind") not in kinds:
        faults.append(not_supported("roleRef.kind", reference.get("kind", ""), kinds))
    if not reference.get("name"):
        faults.append(required("roleRef.name"))
    elif fault := path_segment(reference["name"]):
        faults.append(bad_value("roleRef.name", reference["name"], fault))
    for place, subject in enumerate(binding.get("subjects") or []):
        faults += _subject_faults(subject, f"subjects[{place}]", namespaced=namespaced)
    return faults


def _subject_faults(subject: Object, path: str, *, namespaced: bool) -> Iterator[FieldError]:
    kind, name, group = subject.get("kind", ""), subject.get("name", ""), subject.get("apiGroup", "")
    if not name:
        yield required(f"{path}.name")
    if kind == "ServiceAccount":
        if name and (fault := dns_subdomain(name)):
            yield bad_value(f"{path}.name", name, fault)
        if group:
            yield not_supported(f"{path}.apiGroup", group, ("",))
        if not namespaced and not subject.get("namespace"):
            yield required(f"{path}.namespace")
    elif kind in ("User", "Group"):
        if group != _RBAC:
            yield not_supported(f"{path}.apiGroup", group, (_RBAC,))
    else:
        yield not_supported(f"{path}.kind", kind, ("ServiceAccount", "User", "Group"))


def _validate_binding_update(new: Object, old: Object) -> list[FieldError]:
    if new["roleRef"] != old["roleRef"]:
        return [forbidden_field("roleRef", "cannot change roleRef")]
    return []


def _validate_rules(role: Object) -> list[FieldError]:
    """Rules that grant nothing are refused (pkg/apis/rbac/validation: ValidatePolicyRule)."""
    faults: list[FieldError] = []
    for place, rule in enumerate(role.get("rules") or []):
        path = f"rules[{place}]"
        if not rule.get("verbs"):
            faults.append(required(f"{path}.verbs", "verbs must contain at least one value"))
        if urls := rule.get("nonResourceURLs"):
            if role["metadata"].get("namespace"):
                detail = "namespaced rules cannot apply to non-resource URLs"
                faults.append(bad_value(f"{path}.nonResourceURLs", urls, detail))
            if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
                detail = "rules cannot apply to both regular resources and non-resource URLs"
                faults.append(bad_value(f"{path}.nonResourceURLs", urls, detail))
            continue
        if not rule.get("apiGroups"):
            faults.append(required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
        if not rule.get("resources"):
            faults.append(required(f"{path}.resources", "resource rules must supply at least one resource"))
    return faults


def _quota(part: str) -> Column:
    def value(quota: Object) -> str:
        status = quota.get("status") or {}
        used = status.get("used") or {}
        limits = sorted((status.get("hard") or quota["spec"].get("hard") or {}).items())
        return ", ".join(
            f"{key}: {used.get(key, '0')}/{most}"
            for key, most in limits
            if key.startswith("limits.") == (part == "Limit")
        )

    return Column(part, value)


def _subjects(kind: str) -> Column:
    def value(binding: Object) -> str:
        mine = [subject for subject in binding.get("subjects") or [] if subject["kind"] == kind]
        places = [f"{s['namespace']}/" if s.get("namespace") and kind == "ServiceAccount" else "" for s in mine]
        return ", ".join(place + subject["name"] for place, subject in zip(places, mine, strict=True))

    return Column(f"{kind}s", value, priority=1)


RESOURCES = (
    Resource(
        kind="ServiceAccount",
        plural="serviceaccounts",
        type_name="io.k8s.api.core.v1.ServiceAccount",
        short_names=("sa",),
        storage_hash="pbx9ZvyFpBE=",
        returns_deleted=True,
        subresources=(Subresource("token", ("create",), "TokenRequest", "authentication.k8s.io", "v1"),),
        columns=(NAME, Column("Secrets", lambda account: len(account.get("secrets") or []), type="integer"), AGE),
    ),
    Resource(
        kind="ResourceQuota",
        plural="resourcequotas",
        type_name="io.k8s.api.core.v1.ResourceQuota",
        short_names=("quota",),
        storage_hash="8uhSgffRX6w=",
        returns_deleted=True,
        subresources=(STATUS,),
        default=_spec,
        validate=validate_quota,
        validate_update=validate_quota_update,
        columns=(NAME, _quota("Request"), _quota("Limit"), AGE),
    ),
    Resource(
        kind="PodDisruptionBudget",
        plural="poddisruptionbudgets",
        group="policy",
        type_name="io.k8s.api.policy.v1.PodDisruptionBudget",
        short_names=("pdb",),
        has_generation=True,
        subresources=(STATUS,),
        default=_spec,
        validate=_validate_budget,
        validate_status=_validate_budget_status,
        columns=(
            NAME,
            Column("Min Available", lambda budget: str(budget["spec"].get("minAvailable", "N/A"))),
            Column("Max Unavailable", lambda budget: str(budget["spec"].get("maxUnavailable", "N/A"))),
            Column("Allowed Disruptions", lambda b: b["status"].get("disruptionsAllowed", 0), type="integer"),
            AGE,
        ),
    ),
    Resource(
        kind="PriorityClass",
        plural="priorityclasses",
        group="scheduling.k8s.io",
        namespaced=False,
        type_name="io.k8s.api.scheduling.v1.PriorityClass",
        short_names=("pc",),
        has_generation=True,
        default=_default_priority,
        validate=_validate_priority,
        validate_update=_validate_priority_update,
        columns=(
            NAME,
            Column("Value", lambda priority: priority["value"], type="integer"),
            Column("Global-Default", lambda priority: bool(priority.get("globalDefault")), type="boolean"),
            AGE,
            Column("PreemptionPolicy", lambda priority: priority["preemptionPolicy"]),
        ),
    ),
    Resource(
        kind="NetworkPolicy",
        plural="networkpolicies",
        group="networking.k8s.io",
        type_name="io.k8s.api.networking.v1.NetworkPolicy",
        short_names=("netpol",),
        has_generation=True,
        default=_default_network_policy,
    ),
    *(
        Resource(
            kind=kind,
            plural=f"{kind.lower()}s",
            group=_RBAC,
            namespaced=namespaced,
            type_name=f"io.k8s.api.rbac.v1.{kind}",
            name_rule=path_segment,
            validate=_validate_rules,
        )
        for kind, namespaced in (("Role", True), ("ClusterRole", False))
    ),
    *(
        Resource(
            kind=kind,
            plural=f"{kind.lower()}s",
            group=_RBAC,
            namespaced=namespaced,
            type_name=f"io.k8s.api.rbac.v1.{kind}",
            name_rule=path_segment,
            default=_default_binding,
            validate=_validate_binding,
            validate_update=_validate_binding_update,
            columns=(
                NAME,
                Column("Role", lambda binding: f"{binding['roleRef']['kind']}/{binding['roleRef']['name']}"),
                AGE,
                *map(_subjects, ("User", "Group", "ServiceAccount")),
            ),
        )
        for kind, namespaced in (("RoleBinding", True), ("ClusterRoleBinding", False))
    ),
)
