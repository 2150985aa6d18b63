"""Admission of pods by software that others have installed: a mesh, Kyverno, Gatekeeper, a LimitRange.

Real ones are webhooks, each a server of its own. Here a ConfigMap of the namespace `kube-system` with the label
`kubetwin/admission` holds the rules, each a JSON text under a name of its own:

    namespace    the rule is for its pods only; for all, if it is left out
    labels       labels that are added
    containers   containers that are added behind the pod's own
    initContainers  init containers that are added before the pod's own
    images       a text that begins images' names, and what replaces it
    defaults     requests and limits of containers that name none, as a LimitRange has them
    maximum      the largest request or limit of a container, as a LimitRange has it
    set          fields of the pod's spec, which replace what is there
    env          variables that are added to every container, or replace one of the same name
    deny         the message of a refusal; with `unless_label` only of pods without this label
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator, Mapping
from typing import Any

from kubetwin.controllers.events import EventRecorder
from kubetwin.model.errors import Object, denied, forbidden
from kubetwin.model.quantity import parse_quantity
from kubetwin.resources.resource import Resource
from kubetwin.state.cluster import Cluster

LABEL = "kubetwin/admission"
NAMESPACE = "kube-system"

Rule = Mapping[str, Any]


def start(cluster: Cluster, _recorder: EventRecorder) -> None:
    cluster.admission.append(lambda resource, obj: admit(cluster, resource, obj))


def admit(cluster: Cluster, resource: Resource, obj: Object) -> None:
    """Change a new pod as the rules say, in the order of their names, and then refuse it if one says so.

    Raises:
        ApiError: 400, as of a webhook; 403 for what is larger than a maximum, as of a LimitRange.
    """
    if resource.key != "pods":
        return
    rules = [(name, rule) for name, rule in _rules(cluster) if _is_for(rule, obj)]
    for _, rule in rules:
        _mutate(rule, obj)
    if rules:
        resource.default(obj)
    for name, rule in rules:
        if "deny" in rule and rule.get("unless_label") not in (obj["metadata"].get("labels") or {}):
            raise denied(name, rule["deny"])
        _limit(rule.get("maximum", {}), resource, obj)


def _limit(maximum: Mapping[str, str], resource: Resource, pod: Object) -> None:
    """Refuse a pod with a container that may use more (kubernetes, plugin/pkg/admission/limitranger)."""
    for container in (*pod["spec"]["containers"], *(pod["spec"].get("initContainers") or [])):
        for name, most in maximum.items():
            for kind in ("limits", "requests"):
                amount = (container["resources"].get(kind) or {}).get(name)
                if amount is not None and parse_quantity(amount) > parse_quantity(most):
                    detail = f"maximum {name} usage per Container is {most}, but {kind[:-1]} is {amount}"
                    raise forbidden(resource.group_resource, pod["metadata"].get("name", ""), detail)


def _rules(cluster: Cluster) -> Iterator[tuple[str, Rule]]:
    for found in cluster.store.objects("configmaps", NAMESPACE):
        if LABEL in (found["metadata"].get("labels") or {}):
            yield from ((name, json.loads(text)) for name, text in sorted((found.get("data") or {}).items()))


def _is_for(rule: Rule, pod: Object) -> bool:
    return bool(rule.get("namespace", pod["metadata"]["namespace"]) == pod["metadata"]["namespace"])


def _mutate(rule: Rule, pod: Object) -> None:
    metadata, spec = pod["metadata"], pod["spec"]
    if "labels" in rule:
        metadata["labels"] = {**(metadata.get("labels") or {}), **rule["labels"]}
    spec["containers"] = [*spec["containers"], *copy.deepcopy(rule.get("containers", []))]
    if "initContainers" in rule:
        spec["initContainers"] = [*copy.deepcopy(rule["initContainers"]), *(spec.get("initContainers") or [])]
    spec.update(copy.deepcopy(rule.get("set", {})))
    for container in (*spec["containers"], *(spec.get("initContainers") or [])):
        _mutate_container(rule, container)


def _mutate_container(rule: Rule, container: Object) -> None:
    for begins, replacement in rule.get("images", {}).items():
        if container["image"].startswith(begins):
            container["image"] = replacement + container["image"].removeprefix(begins)
    if "env" in rule:
        kept = [each for each in container.get("env") or [] if each["name"] not in rule["env"]]
        container["env"] = [*kept, *({"name": name, "value": value} for name, value in rule["env"].items())]
    for kind, amounts in rule.get("defaults", {}).items():
        resources = container.setdefault("resources", {})
        resources[kind] = {**amounts, **(resources.get(kind) or {})}
