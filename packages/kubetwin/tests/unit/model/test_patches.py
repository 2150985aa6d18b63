from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kubetwin.model.patches import PatchFailed, json_patch, merge_patch, strategic_merge
from kubetwin.model.schema import definition

POD = definition("io.k8s.api.core.v1.Pod")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=10,
)


def test_a_merge_patch_deletes_what_is_null_and_replaces_lists() -> None:
    target = {"a": 1, "b": {"c": 2, "d": 3}, "list": [1, 2]}
    assert merge_patch(target, {"a": None, "b": {"d": 4}, "list": [9]}) == {"b": {"c": 2, "d": 4}, "list": [9]}


@given(json_values, json_values)
def test_a_merge_patch_is_idempotent(target: Any, patch: Any) -> None:
    once = merge_patch(target, patch)
    assert merge_patch(once, patch) == once


def test_a_strategic_patch_merges_containers_by_name_and_leaves_the_original_alone() -> None:
    pod: dict[str, Any] = {
        "spec": {"containers": [{"name": "c", "image": "a", "command": ["x"]}, {"name": "d", "image": "b"}]}
    }
    patched = strategic_merge(pod, {"spec": {"containers": [{"name": "c", "image": "new"}]}}, POD)
    assert patched["spec"]["containers"][0] == {"name": "c", "image": "new", "command": ["x"]}
    assert patched["spec"]["containers"][1] == {"name": "d", "image": "b"}
    assert pod["spec"]["containers"][0]["image"] == "a"


def test_a_strategic_patch_merges_conditions_by_type() -> None:
    pod = {"status": {"conditions": [{"type": "Ready", "status": "False", "reason": "X"}]}}
    patch = {"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "New", "status": "True"}]}}
    assert strategic_merge(pod, patch, POD)["status"]["conditions"] == [
        {"type": "Ready", "status": "True", "reason": "X"},
        {"type": "New", "status": "True"},
    ]


def test_a_strategic_patch_replaces_lists_without_a_merge_key() -> None:
    pod = {"spec": {"tolerations": [{"key": "a"}]}}
    assert strategic_merge(pod, {"spec": {"tolerations": [{"key": "b"}]}}, POD)["spec"]["tolerations"] == [{"key": "b"}]


def test_directives_delete_and_replace_elements_of_a_list() -> None:
    pod = {"spec": {"volumes": [{"name": "a"}, {"name": "b"}]}}
    deleted = strategic_merge(pod, {"spec": {"volumes": [{"name": "a", "$patch": "delete"}]}}, POD)
    assert deleted["spec"]["volumes"] == [{"name": "b"}]
    replaced = strategic_merge(pod, {"spec": {"volumes": [{"name": "z"}, {"$patch": "replace"}]}}, POD)
    assert replaced["spec"]["volumes"] == [{"name": "z"}]


def test_finalizers_are_added_to_and_can_be_deleted_one_by_one() -> None:
    pod = {"metadata": {"finalizers": ["a", "b"]}}
    assert strategic_merge(pod, {"metadata": {"finalizers": ["c"]}}, POD)["metadata"]["finalizers"] == ["a", "b", "c"]
    patch = {"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}
    assert strategic_merge(pod, patch, POD)["metadata"]["finalizers"] == ["b"]


@pytest.mark.parametrize(
    "operations",
    [
        [{"op": "test", "path": "/data/b", "value": "other"}],
        [{"op": "remove", "path": "/data/missing"}],
        [{"op": "bogus", "path": "/data/b"}],
        [{"path": "/data/b"}],
    ],
)
def test_a_json_patch_that_does_not_apply_fails_as_a_whole(operations: list[Any]) -> None:
    obj = {"data": {"b": "2"}}
    with pytest.raises(PatchFailed):
        json_patch(obj, [{"op": "add", "path": "/data/c", "value": "3"}, *operations])
    assert obj == {"data": {"b": "2"}}


def test_keys_that_are_not_retained_are_dropped() -> None:
    target = {"spec": {"volumes": [{"name": "v", "emptyDir": {}}]}}
    patch = {"spec": {"volumes": [{"$retainKeys": ["name", "hostPath"], "name": "v", "hostPath": {"path": "/x"}}]}}
    assert strategic_merge(target, patch, POD) == {"spec": {"volumes": [{"name": "v", "hostPath": {"path": "/x"}}]}}


def test_elements_are_put_into_the_order_that_a_patch_names() -> None:
    target = {"spec": {"containers": [{"name": "a"}, {"name": "b"}, {"name": "kept"}]}}
    patch = {
        "spec": {
            "$setElementOrder/containers": [{"name": "b"}, {"name": "new"}, {"name": "a"}],
            "containers": [{"name": "new", "image": "i"}],
        }
    }
    names = [each["name"] for each in strategic_merge(target, patch, POD)["spec"]["containers"]]
    assert [name for name in names if name != "kept"] == ["b", "new", "a"]
    assert sorted(names) == ["a", "b", "kept", "new"]


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"metadata": {"labels": {"$patch": "odd", "z": "1"}}}, "unknown patch type: odd in map: map[$patch:odd z:1]"),
        (
            {"spec": {"containers": [{"image": "i"}]}},
            "map: map[image:i] does not contain declared merge key: name",
        ),
    ],
)
def test_a_strategic_patch_that_cannot_be_understood_says_why(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(PatchFailed) as refused:
        strategic_merge({"metadata": {}, "spec": {"containers": []}}, patch, POD)
    assert str(refused.value) == words
