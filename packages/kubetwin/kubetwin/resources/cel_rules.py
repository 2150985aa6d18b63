"""The CEL rules of the definitions that this cluster has, as functions. Pure.

A definition holds a rule as its text in `x-kubernetes-validations`, as the real one does; this module knows each text.
A rule that names `oldSelf` is checked only where the object had a value before. A fault shows a single value and omits
objects and lists (kubernetes/kubernetes, pull request 133832, in Kubernetes 1.35).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from kubetwin.model.errors import FieldError, Object, bad_object, bad_value
from kubetwin.model.schema import Schema, resolve

KEY = "x-kubernetes-validations"

ROOT = "<nil>"
"""Path of a fault of the whole object."""

IMMUTABLE = "self == oldSelf"
NAME_IS_A_LABEL = "self.metadata.name.matches('^[a-z]([-a-z0-9]*[a-z0-9])?$')"
NAME_LENGTH = "size(self.metadata.name) <= 63"
IS_URI = "self == '' || self.matches('^[A-Za-z][A-Za-z0-9+.-]*://.+$')"
IS_TRAINJOB_MANAGER = "self in ['trainer.kubeflow.org/trainjob-controller', 'kueue.x-k8s.io/multikueue']"
HAS_LAST_UPDATE = "has(self.lastUpdatedTime)"
AT_LEAST_ONE = "self >= 1"
NO_NODE_CONTAINER = "!self.exists(c, c == 'node')"
ONE_POLICY = (
    "[has(self.torch), has(self.mpi), has(self.jax), has(self.xgboost),has(self.flux)].filter(x, x).size() <= 1"
)

_MANAGERS = ("trainer.kubeflow.org/trainjob-controller", "kueue.x-k8s.io/multikueue")
_POLICIES = ("torch", "mpi", "jax", "xgboost", "flux")

_CHECKS: Mapping[str, Callable[[Any], bool]] = {
    NAME_IS_A_LABEL: lambda obj: bool(re.search(r"^[a-z]([-a-z0-9]*[a-z0-9])?\Z", obj["metadata"].get("name", ""))),
    NAME_LENGTH: lambda obj: len(obj["metadata"].get("name", "")) <= 63,
    IS_URI: lambda value: value == "" or bool(re.search(r"^[A-Za-z][A-Za-z0-9+.-]*://.+\Z", value)),
    IS_TRAINJOB_MANAGER: lambda value: value in _MANAGERS,
    HAS_LAST_UPDATE: lambda status: "lastUpdatedTime" in status,
    AT_LEAST_ONE: lambda number: number >= 1,
    NO_NODE_CONTAINER: lambda names: "node" not in names,
    ONE_POLICY: lambda policy: sum(name in policy for name in _POLICIES) <= 1,
}


def rule(text: str, message: str) -> Object:
    """One rule of a definition."""
    return {"rule": text, "message": message}


def faults_of_rules(value: Any, old: Any, schema: Schema, path: str = "") -> Iterator[FieldError]:
    """Faults by the rules of a schema and of the values below it.

    Args:
        value: The new value. It fits the schema.
        old: The value that it replaces; None for a new one.
        schema: Its structural schema.
        path: Its place; empty for the whole object.
    """
    _, schema = resolve(schema)
    for each in schema.get(KEY) or ():
        if _holds(each["rule"], value, old):
            continue
        if isinstance(value, dict | list):
            yield bad_object(path or ROOT, each["message"])
        else:
            yield bad_value(path, value, each["message"])
    if isinstance(value, dict):
        before = old if isinstance(old, dict) else {}
        for key, inner in (schema.get("properties") or {}).items():
            if value.get(key) is not None:
                yield from faults_of_rules(value[key], before.get(key), inner, f"{path}.{key}" if path else key)
    elif isinstance(value, list) and "items" in schema:
        for place, item in enumerate(value):
            yield from faults_of_rules(item, _counterpart(item, old, schema), schema["items"], f"{path}[{place}]")


def _holds(text: str, value: Any, old: Any) -> bool:
    if text == IMMUTABLE:
        return old is None or bool(value == old)
    return _CHECKS[text](value)


def _counterpart(item: Any, old: Any, schema: Schema) -> Any:
    """The earlier element of a keyed list; None for an element of another list."""
    keys = schema.get("x-kubernetes-list-map-keys")
    if not keys or not isinstance(old, list):
        return None
    return next((each for each in old if all(each.get(key) == item.get(key) for key in keys)), None)
