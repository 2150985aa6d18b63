from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubetwin.model.quantity import parse_quantity
from kubetwin.node.shape import (
    TAINT_EFFECTS,
    NodeShape,
    ShapeError,
    extended,
    parse_shape,
    parse_taint,
    read_shape,
    this_machine,
    write_shape,
)

CAPACITY = {"cpu": "8", "memory": "32Gi", "pods": "58"}
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}

NAMES = st.from_regex(r"[a-z]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
AMOUNTS = st.one_of(st.integers(0, 10**6).map(str), st.integers(1, 999).map("{}Gi".format))
CAPACITIES = st.dictionaries(NAMES, AMOUNTS).map(lambda devices: {**devices, **CAPACITY})
TAINTS = st.fixed_dictionaries({"key": NAMES, "effect": st.sampled_from(TAINT_EFFECTS)}, optional={"value": NAMES})
SHAPES = st.builds(
    lambda capacity, labels, taints: NodeShape(capacity=capacity, allocatable=capacity, labels=labels, taints=taints),
    CAPACITIES,
    st.dictionaries(NAMES, NAMES),
    st.lists(TAINTS, max_size=3),
)


@given(shape=SHAPES)
def test_what_is_written_is_read_again(shape: NodeShape) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "new" / "shape.json"
        write_shape(path, shape)
        assert read_shape(path) == shape


def test_a_yaml_file_may_leave_out_all_but_the_capacity(tmp_path: Path) -> None:
    path = tmp_path / "shape.yaml"
    path.write_text("capacity: {cpu: 8, memory: 32Gi, pods: 58}")
    assert read_shape(path) == NodeShape(capacity=CAPACITY, allocatable=CAPACITY, labels={}, taints=[])


def test_the_default_is_this_machine() -> None:
    shape = this_machine()
    assert shape.allocatable == shape.capacity
    assert parse_quantity(shape.capacity["cpu"]) >= 1
    assert parse_quantity(shape.capacity["memory"]) > 2**20
    assert shape.capacity["pods"] == "110"


def test_a_shape_is_extended_by_labels_and_taints() -> None:
    shape = parse_shape({"capacity": CAPACITY, "labels": {"a": "1", "b": "2"}, "taints": [TAINT]})
    other = {"key": "spot", "effect": "NoExecute"}
    more = extended(shape, labels={"b": "3"}, taints=[other])
    assert more == NodeShape(
        capacity=CAPACITY, allocatable=CAPACITY, labels={"a": "1", "b": "3"}, taints=[TAINT, other]
    )
    with pytest.raises(ShapeError, match=r"^labels: Invalid value"):
        extended(shape, labels={"not a key": ""})


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (None, "a mapping with the fields capacity, allocatable, labels, taints is expected"),
        ([], "a mapping with the fields"),
        ({"capacity": CAPACITY, "label": {}}, "label: is not a known field; known are capacity, "),
        ({}, "capacity: a mapping from resource names to quantities is expected"),
        ({"capacity": {"cpu": 1}}, "capacity: memory, pods is missing"),
        ({"capacity": {**CAPACITY, "cpu": "many"}}, "capacity.cpu: 'many' is not a quantity such as 4, 500m or 64Gi"),
        ({"capacity": {**CAPACITY, "cpu": True}}, "capacity.cpu: True is not a quantity"),
        ({"capacity": {**CAPACITY, "cpu": [1]}}, "capacity.cpu: [1] is not a quantity"),
        ({"capacity": {**CAPACITY, "cpu": "-1"}}, "capacity.cpu: '-1' is not a quantity"),
        ({"capacity": CAPACITY, "allocatable": {"cpu": 9}}, "allocatable.cpu: 9 is more than the capacity, 8"),
        ({"capacity": CAPACITY, "allocatable": {"gpu": 1}}, "allocatable.gpu: 1 is more than the capacity, 0"),
        ({"capacity": CAPACITY, "labels": {"a": True}}, "labels: a mapping from texts to texts is expected; quote"),
        ({"capacity": CAPACITY, "labels": {"a b": "c"}}, "labels: Invalid value"),
        ({"capacity": CAPACITY, "taints": {"a": "b"}}, "taints: a list is expected"),
        ({"capacity": CAPACITY, "taints": ["gpu"]}, "taints[0]: a mapping with the fields key, value, effect"),
        ({"capacity": CAPACITY, "taints": [TAINT, {}]}, "taints[1].key: is missing"),
        ({"capacity": CAPACITY, "taints": [{**TAINT, "extra": ""}]}, "taints[0].extra: is not a known field"),
        ({"capacity": CAPACITY, "taints": [{**TAINT, "effect": "Never"}]}, "taints[0].effect: 'Never' is not one of"),
    ],
)
def test_a_malformed_shape_is_refused_with_its_field(document: Any, message: str) -> None:
    with pytest.raises(ShapeError) as refused:
        parse_shape(document)
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"capacity: [", "is neither JSON nor YAML"),
        (b"since: 2026-99-99", "is neither JSON nor YAML"),
        (b"\xff\xfe\xfa", "is neither JSON nor YAML"),
        (json.dumps({"capacity": {}}).encode(), "capacity: cpu, memory, pods is missing"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_used_is_named_in_one_line(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "shape.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ShapeError) as refused:
        read_shape(path)
    assert str(refused.value).startswith(f"{path}: {message}")
    assert "\n" not in str(refused.value)


def test_a_taint_is_written_with_or_without_a_value() -> None:
    assert parse_taint("gpu=yes:NoSchedule") == TAINT
    assert parse_taint("spot:NoExecute") == {"key": "spot", "effect": "NoExecute"}


@pytest.mark.parametrize("text", ["", "key", "key:Never", ":NoSchedule"])
def test_a_taint_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ShapeError, match="is not of the form"):
        parse_taint(text)
