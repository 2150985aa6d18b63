from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubetwin.model.apply import apply, created_by, faults_of_type, updated_by
from kubetwin.model.errors import ApiError
from kubetwin.model.schema import definition

CONFIG_MAP = definition("io.k8s.api.core.v1.ConfigMap")
POD = definition("io.k8s.api.core.v1.Pod")
NOW = datetime(2026, 11, 21, tzinfo=UTC)


def config_map(**data: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, "data": data}


def applied(live: dict[str, Any], manager: str, *, force: bool = False, **data: str) -> dict[str, Any]:
    return apply(live, config_map(**data), CONFIG_MAP, manager=manager, force=force, moment=NOW)


def test_a_field_that_its_only_manager_drops_is_removed() -> None:
    live = applied(applied({"metadata": {"name": "c"}}, "m1", a="1", b="2"), "m1", a="1")
    assert live["data"] == {"a": "1"}


def test_a_field_that_another_manager_applies_too_stays() -> None:
    live = applied(applied({"metadata": {"name": "c"}}, "m1", a="1"), "m2", a="1")
    assert applied(live, "m1")["data"] == {"a": "1"}


def test_another_managers_value_is_a_conflict_that_names_the_field() -> None:
    live = applied({"metadata": {"name": "c"}}, "m1", a="1")
    with pytest.raises(ApiError) as refused:
        applied(live, "m2", a="9")
    assert refused.value.code == 409
    assert refused.value.message == 'Apply failed with 1 conflict: conflict with "m1": .data.a'


def test_force_takes_the_field_over() -> None:
    live = applied(applied({"metadata": {"name": "c"}}, "m1", a="1"), "m2", force=True, a="9")
    assert live["data"] == {"a": "9"}
    assert applied(live, "m1")["data"] == {"a": "9"}


def test_an_ordinary_update_takes_the_ownership_of_a_field_from_its_manager() -> None:
    live = applied({"metadata": {"name": "c"}}, "m1", a="1", b="2")
    updated = updated_by("", live, {**live, "data": {"a": "changed", "b": "2"}}, CONFIG_MAP)
    assert applied(updated, "m1", b="2")["data"] == {"a": "changed", "b": "2"}


def test_keyed_lists_are_merged_by_their_keys() -> None:
    first = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "a", "image": "x"}]}}
    second = {"apiVersion": "v1", "kind": "Pod", "spec": {"containers": [{"name": "b", "image": "y"}]}}
    live = apply({"metadata": {"name": "p"}}, first, POD, manager="m1", force=False, moment=NOW)
    both = apply(live, second, POD, manager="m2", force=False, moment=NOW)
    assert [c["name"] for c in both["spec"]["containers"]] == ["a", "b"]
    nothing = {"apiVersion": "v1", "kind": "Pod", "spec": {}}
    without = apply(both, nothing, POD, manager="m1", force=False, moment=NOW)
    assert [c["name"] for c in without["spec"]["containers"]] == ["b"]


def test_the_owners_of_an_apply_are_not_undone_by_the_update_that_stores_it() -> None:
    live = applied({"metadata": {"name": "c"}}, "m1", a="1")
    forced = applied(live, "m2", force=True, a="9")
    assert updated_by("", live, forced, CONFIG_MAP) == forced


def test_an_element_without_the_default_of_its_key_is_the_stored_one() -> None:
    def web(**port: Any) -> dict[str, Any]:
        container = {"name": "c", "ports": [{"containerPort": 80, **port}]}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"containers": [container]}}

    live = apply({"metadata": {"name": "p"}}, web(), POD, manager="m", force=False, moment=NOW)
    live["spec"]["containers"][0]["ports"][0]["protocol"] = "TCP"
    again = apply(live, web(name="http"), POD, manager="m", force=False, moment=NOW)
    assert again["spec"]["containers"][0]["ports"] == [{"containerPort": 80, "protocol": "TCP", "name": "http"}]


def test_a_field_that_an_update_took_is_a_conflict_for_its_earlier_manager() -> None:
    live = applied({"apiVersion": "v1", "metadata": {"name": "c"}}, "m1", a="1", b="2")
    replaced = {**live, "data": {"a": "9", "b": "2"}}
    updated = updated_by("kubectl-replace", live, replaced, CONFIG_MAP)
    with pytest.raises(ApiError) as refused:
        applied(updated, "m1", a="1", b="2")
    expected = 'Apply failed with 1 conflict: conflict with "kubectl-replace" using v1: .data.a'
    assert refused.value.message == expected
    assert applied(updated, "m1", force=True, a="1", b="2")["data"] == {"a": "1", "b": "2"}


def test_the_fields_of_a_new_object_belong_to_its_creator() -> None:
    created = created_by("kubectl-create", config_map(a="1"), CONFIG_MAP)
    with pytest.raises(ApiError) as refused:
        applied(created, "m2", a="9")
    assert refused.value.message == 'Apply failed with 1 conflict: conflict with "kubectl-create" using v1: .data.a'


def test_the_fields_of_an_object_without_managers_belong_to_none_of_them() -> None:
    with pytest.raises(ApiError, match=r'conflict with "before-first-apply" using v1: \.data\.a'):
        applied(config_map(a="1"), "m2", a="9")


def test_conflicts_are_listed_by_manager() -> None:
    live = applied(applied({"metadata": {"name": "c"}}, "m1", a="1", b="1"), "m2", a="1")
    with pytest.raises(ApiError) as refused:
        applied(live, "m3", a="9", b="9")
    assert refused.value.message == (
        'Apply failed with 3 conflicts: conflicts with "m1":\n- .data.a\n- .data.b\nconflicts with "m2":\n- .data.a'
    )


def test_a_manager_whose_fields_stay_keeps_its_time() -> None:
    live = applied({"metadata": {"name": "c"}}, "m1", a="1")
    later = apply(live, config_map(b="1"), CONFIG_MAP, manager="m2", force=False, moment=NOW + timedelta(minutes=1))
    times = {entry["manager"]: entry["time"] for entry in later["metadata"]["managedFields"]}
    assert times == {"m1": "2026-11-21T00:00:00Z", "m2": "2026-11-21T00:01:00Z"}


def test_elements_of_a_set_belong_to_those_who_applied_them() -> None:
    def with_finalizers(*names: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "finalizers": list(names)}}

    live = apply({"metadata": {"name": "c"}}, with_finalizers("a/1"), CONFIG_MAP, manager="m1", force=False, moment=NOW)
    live = apply(live, with_finalizers("a/2"), CONFIG_MAP, manager="m2", force=False, moment=NOW)
    assert live["metadata"]["finalizers"] == ["a/1", "a/2"]
    live = apply(live, config_map(), CONFIG_MAP, manager="m1", force=False, moment=NOW)
    assert live["metadata"]["finalizers"] == ["a/2"]


def test_an_atomic_map_has_one_owner() -> None:
    def selecting(**labels: str) -> dict[str, Any]:
        return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"nodeSelector": labels}}

    live = apply({"metadata": {"name": "p"}}, selecting(a="1"), POD, manager="m1", force=False, moment=NOW)
    with pytest.raises(ApiError, match=r'conflict with "m1": \.spec\.nodeSelector$'):
        apply(live, selecting(b="1"), POD, manager="m2", force=False, moment=NOW)


@pytest.mark.parametrize(
    ("applied_object", "fault"),
    [
        ({"dat": {}}, ".dat: field not declared in schema"),
        ({"data": {"a": 1}}, ".data.a: expected string, got &value.valueUnstructured{Value:1}"),
        ({"immutable": "x"}, '.immutable: expected boolean, got &value.valueUnstructured{Value:"x"}'),
        ({"data": {"a": "1"}, "metadata": {"creationTimestamp": None}}, None),
    ],
)
def test_what_is_applied_has_to_fit_its_type(applied_object: dict[str, Any], fault: str | None) -> None:
    assert [*faults_of_type(applied_object, CONFIG_MAP)] == ([fault] if fault else [])


def test_two_elements_with_one_key_cannot_be_applied() -> None:
    twice = {"spec": {"containers": [{"name": "c", "image": "a"}, {"name": "c", "image": "b"}]}}
    assert [*faults_of_type(twice, POD)] == ['.spec.containers: duplicate entries for key [name="c"]']
