"""Resources, labels and taints of a node: data that the caller passes, in Python or as a file.

A file is JSON or YAML:

    capacity: {cpu: 8, memory: 32Gi, pods: 58, example.com/gpu: 1}
    allocatable: {cpu: 7900m, memory: 29Gi, pods: 55, example.com/gpu: 1}   # the capacity if not given
    labels: {node.kubernetes.io/instance-type: small}
    taints: [{key: example.com/gpu, value: "true", effect: NoSchedule}]
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import psutil
import yaml

from kubetwin.model.names import validate_labels
from kubetwin.model.quantity import BadQuantity, parse_quantity

MAX_PODS = 110
"""Default of the kubelet's `maxPods` (Kubernetes reference, KubeletConfiguration v1beta1)."""

TAINT_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")

_REQUIRED_RESOURCES = ("cpu", "memory", "pods")
_TAINT_FIELDS = ("key", "value", "effect")


class ShapeError(Exception):
    """A node shape cannot be used; the text names the field and its fault."""


@dataclass(frozen=True, kw_only=True)
class NodeShape:
    """The properties that nodes of one kind share."""

    capacity: Mapping[str, str]
    """Resource name to quantity; holds `cpu`, `memory` and `pods`."""
    allocatable: Mapping[str, str]
    """Part of the capacity that the scheduler gives to pods."""
    labels: Mapping[str, str] = field(default_factory=dict)
    taints: Sequence[Mapping[str, str]] = ()
    """Taints as in a Node's `spec.taints`: key, effect, and value where there is one."""


def this_machine() -> NodeShape:
    """CPUs and memory of this machine, all of them allocatable."""
    capacity = {
        "cpu": str(psutil.cpu_count() or 1),
        "memory": f"{psutil.virtual_memory().total // 1024}Ki",
        "pods": str(MAX_PODS),
    }
    return NodeShape(capacity=capacity, allocatable=capacity)


def read_shape(path: Path) -> NodeShape:
    """The shape that a JSON or YAML file describes.

    Raises:
        ShapeError: If the file cannot be read or does not describe a shape.
    """
    try:
        document = yaml.safe_load(path.read_text())
    except OSError as error:
        raise ShapeError(f"{path}: cannot be read: {error.strerror}") from error
    except (yaml.YAMLError, ValueError) as error:
        raise ShapeError(f"{path}: is neither JSON nor YAML: {' '.join(str(error).split())}") from error
    try:
        return parse_shape(document)
    except ShapeError as error:
        raise ShapeError(f"{path}: {error}") from error


def write_shape(path: Path, shape: NodeShape) -> None:
    """Write the file that `read_shape` reads; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(asdict(shape), indent=2))


def parse_shape(document: Any) -> NodeShape:
    """The shape that a decoded file describes.

    Raises:
        ShapeError: If a field is missing, unknown or malformed.
    """
    known = ("capacity", "allocatable", "labels", "taints")
    if not isinstance(document, Mapping):
        raise ShapeError(f"a mapping with the fields {', '.join(known)} is expected")
    _refuse_others("", document, known)
    capacity = _quantities("capacity", document.get("capacity"))
    missing = [name for name in _REQUIRED_RESOURCES if name not in capacity]
    if missing:
        raise ShapeError(f"capacity: {', '.join(missing)} is missing")
    allocatable = _quantities("allocatable", document.get("allocatable", capacity))
    for name, amount in allocatable.items():
        if parse_quantity(amount) > parse_quantity(capacity.get(name, "0")):
            raise ShapeError(f"allocatable.{name}: {amount} is more than the capacity, {capacity.get(name, '0')}")
    return NodeShape(
        capacity=capacity,
        allocatable=allocatable,
        labels=_labels(document.get("labels") or {}),
        taints=_taints(document.get("taints") or []),
    )


def extended(
    shape: NodeShape, *, labels: Mapping[str, str] | None = None, taints: Sequence[Mapping[str, str]] = ()
) -> NodeShape:
    """The shape with further labels, which replace those of the same key, and further taints.

    Raises:
        ShapeError: If a label is malformed.
    """
    return replace(shape, labels={**shape.labels, **_labels(labels or {})}, taints=[*shape.taints, *taints])


def parse_taint(text: str) -> dict[str, str]:
    """A taint written as `key=value:Effect` or `key:Effect`.

    Raises:
        ShapeError: If it is written otherwise.
    """
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    if not key or effect not in TAINT_EFFECTS:
        effects = ", ".join(TAINT_EFFECTS)
        raise ShapeError(f"taint {text!r} is not of the form key=value:Effect, Effect one of {effects}")
    return {"key": key, "effect": effect, **({"value": value} if value else {})}


def _quantities(name: str, document: Any) -> dict[str, str]:
    if not isinstance(document, Mapping):
        raise ShapeError(f"{name}: a mapping from resource names to quantities is expected")
    quantities = {}
    for resource, amount in document.items():
        try:
            if isinstance(amount, bool) or parse_quantity(amount) < 0:
                raise BadQuantity
        except (BadQuantity, TypeError) as error:
            raise ShapeError(f"{name}.{resource}: {amount!r} is not a quantity such as 4, 500m or 64Gi") from error
        quantities[str(resource)] = str(amount)
    return quantities


def _labels(document: Any) -> dict[str, str]:
    if not _holds_texts(document):
        raise ShapeError("labels: a mapping from texts to texts is expected; quote values such as true and 1")
    for fault in validate_labels(document, "labels"):
        raise ShapeError(str(fault))
    return dict(document)


def _taints(document: Any) -> list[dict[str, str]]:
    if not isinstance(document, list):
        raise ShapeError("taints: a list is expected")
    for number, taint in enumerate(document):
        where = f"taints[{number}]"
        if not _holds_texts(taint):
            raise ShapeError(f"{where}: a mapping with the fields {', '.join(_TAINT_FIELDS)}, all texts, is expected")
        _refuse_others(f"{where}.", taint, _TAINT_FIELDS)
        if not taint.get("key"):
            raise ShapeError(f"{where}.key: is missing")
        if taint.get("effect") not in TAINT_EFFECTS:
            raise ShapeError(f"{where}.effect: {taint.get('effect')!r} is not one of {', '.join(TAINT_EFFECTS)}")
    return [dict(taint) for taint in document]


def _holds_texts(document: Any) -> bool:
    return isinstance(document, Mapping) and all(isinstance(text, str) for pair in document.items() for text in pair)


def _refuse_others(prefix: str, document: Mapping[str, Any], known: Iterable[str]) -> None:
    for name in document:
        if name not in known:
            raise ShapeError(f"{prefix}{name}: is not a known field; known are {', '.join(known)}")
