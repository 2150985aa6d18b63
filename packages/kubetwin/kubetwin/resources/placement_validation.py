"""Faults of the rules for the placement of a pod that the server refuses (pkg/apis/core/validation)."""

from __future__ import annotations

from collections.abc import Iterator

from kubetwin.model.errors import FieldError, Object, Shown, bad_value, not_supported, one_of, required
from kubetwin.model.go_types import go_text
from kubetwin.model.names import label_value, qualified_name, validate_labels
from kubetwin.resources.selector_validation import requirement_faults, selector_faults

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def validate_placement(spec: Object, path: str) -> Iterator[FieldError]:
    """Faults of selectors, tolerations, affinity and spread constraints."""
    affinity = spec.get("affinity") or {}
    yield from validate_labels(spec.get("nodeSelector"), f"{path}.nodeSelector")
    yield from _node_affinity(affinity.get("nodeAffinity") or {}, f"{path}.affinity.nodeAffinity")
    for kind in ("podAffinity", "podAntiAffinity"):
        yield from _pod_affinity(affinity.get(kind) or {}, f"{path}.affinity.{kind}")
    yield from _tolerations(spec.get("tolerations") or [], f"{path}.tolerations")
    for place, rule in enumerate(spec.get("topologySpreadConstraints") or []):
        yield from _spread(rule, f"{path}.topologySpreadConstraints[{place}]")


def _tolerations(tolerations: list[Object], path: str) -> Iterator[FieldError]:
    for place, toleration in enumerate(tolerations):
        where, key = f"{path}[{place}]", toleration.get("key", "")
        operator, effect = toleration.get("operator", "Equal"), toleration.get("effect", "")
        if key and (fault := qualified_name(key)):
            yield bad_value(f"{where}.key", key, fault)
        if not key and operator != "Exists":
            detail = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
            yield bad_value(f"{where}.operator", operator, detail)
        if toleration.get("tolerationSeconds") is not None and effect != "NoExecute":
            yield bad_value(f"{where}.effect", effect, "effect must be 'NoExecute' when `tolerationSeconds` is set")
        if operator not in ("Equal", "Exists"):
            yield not_supported(f"{where}.operator", operator, ("Equal", "Exists"))
        elif operator == "Exists" and toleration.get("value"):
            detail = "value must be empty when `operator` is 'Exists'"
            yield bad_value(f"{where}.operator", Shown(go_text(toleration, "Toleration")), detail)
        elif operator == "Equal" and (fault := label_value(toleration.get("value", ""))):
            yield bad_value(f"{where}.operator", toleration["value"], fault)
        if effect and effect not in EFFECTS:
            yield not_supported(f"{where}.effect", effect, EFFECTS)


def _node_affinity(affinity: Object, path: str) -> Iterator[FieldError]:
    needed = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
    if needed is not None:
        where = f"{path}.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
        if not needed.get("nodeSelectorTerms"):
            yield required(where, "must have at least one node selector term")
        for place, term in enumerate(needed.get("nodeSelectorTerms") or []):
            yield from _term(term, f"{where}[{place}]")
    for place, each in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []):
        where = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{place}]"
        yield from _weight(each, where)
        yield from _term(each.get("preference") or {}, f"{where}.preference")


def _weight(rule: Object, path: str) -> Iterator[FieldError]:
    if not 1 <= rule.get("weight", 0) <= 100:
        yield bad_value(f"{path}.weight", rule.get("weight", 0), "must be in the range 1-100")


def _term(term: Object, path: str) -> Iterator[FieldError]:
    for place, requirement in enumerate(term.get("matchExpressions") or []):
        yield from requirement_faults(requirement, f"{path}.matchExpressions[{place}]", compares=True)
    for place, requirement in enumerate(term.get("matchFields") or []):
        yield from _node_field(requirement, f"{path}.matchFields[{place}]")


def _pod_affinity(affinity: Object, path: str) -> Iterator[FieldError]:
    for place, term in enumerate(affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []):
        yield from _pod_term(term, f"{path}.requiredDuringSchedulingIgnoredDuringExecution[{place}]")
    for place, each in enumerate(affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []):
        where = f"{path}.preferredDuringSchedulingIgnoredDuringExecution[{place}]"
        yield from _weight(each, where)
        yield from _pod_term(each.get("podAffinityTerm") or {}, f"{where}.podAffinityTerm")


def _pod_term(term: Object, path: str) -> Iterator[FieldError]:
    for field in ("labelSelector", "namespaceSelector"):
        yield from selector_faults(term.get(field), f"{path}.{field}")
    yield from _topology_key(term, path)


def _topology_key(rule: Object, path: str) -> Iterator[FieldError]:
    key = rule.get("topologyKey", "")
    if not key:
        yield required(f"{path}.topologyKey", "can not be empty")
    elif fault := qualified_name(key):
        yield bad_value(f"{path}.topologyKey", key, fault)


def _spread(rule: Object, path: str) -> Iterator[FieldError]:
    if rule.get("maxSkew", 0) <= 0:
        yield bad_value(f"{path}.maxSkew", rule.get("maxSkew", 0), "must be greater than zero")
    yield from _topology_key(rule, path)
    choices, chosen = ("DoNotSchedule", "ScheduleAnyway"), rule.get("whenUnsatisfiable", "")
    yield from one_of(f"{path}.whenUnsatisfiable", chosen, choices)
    yield from selector_faults(rule.get("labelSelector"), f"{path}.labelSelector")


def _node_field(requirement: Object, path: str) -> Iterator[FieldError]:
    operator, values = requirement.get("operator", ""), requirement.get("values") or []
    if operator not in ("In", "NotIn"):
        yield bad_value(f"{path}.operator", operator, "not a valid selector operator")
    elif len(values) != 1:
        detail = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        yield required(f"{path}.values", detail)
    if requirement.get("key") != "metadata.name":
        yield bad_value(f"{path}.key", requirement.get("key", ""), "not a valid field selector key")
