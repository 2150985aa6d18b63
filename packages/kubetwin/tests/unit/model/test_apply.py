from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from kubetwin.model.apply import apply, release_changed
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
    updated = release_changed(live, {**live, "data": {"a": "changed", "b": "2"}}, CONFIG_MAP)
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
    assert release_changed(live, forced, CONFIG_MAP) == forced


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
    updated = release_changed(live, replaced, CONFIG_MAP, manager="kubectl-replace")
    with pytest.raises(ApiError) as refused:
        applied(updated, "m1", a="1", b="2")
    expected = 'Apply failed with 1 conflict: conflict with "kubectl-replace" using v1: .data.a'
    assert refused.value.message == expected
    assert applied(updated, "m1", force=True, a="1", b="2")["data"] == {"a": "1", "b": "2"}
