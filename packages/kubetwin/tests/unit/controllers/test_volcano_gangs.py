"""Volcano's scheduling decisions, without a cluster."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from kubetwin.controllers.scheduling import Usage
from kubetwin.controllers.volcano_gangs import place_gang, room, why_not_admitted

NEURON = "aws.amazon.com/neuron"
OPEN: dict[str, Any] = {"metadata": {"name": "default"}, "spec": {}, "status": {"state": "Open"}}


def node(name: str, devices: int = 16, **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name, "labels": {}},
        "spec": spec,
        "status": {"allocatable": {"cpu": "128", "pods": "110", NEURON: str(devices)}},
    }


def pod(name: str, devices: int = 16) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"containers": [{"resources": {"requests": {NEURON: str(devices)}}}]},
    }


def group(devices: int, **spec: Any) -> dict[str, Any]:
    wanted = {NEURON: str(devices), f"requests.{NEURON}": str(devices), "pods": "2", "count/pods": "2"}
    return {"spec": {"minMember": 2, "minResources": wanted, "queue": "default", **spec}}


def refusal(devices: int, nodes: list[dict[str, Any]], queue: dict[str, Any] | None = OPEN, held: int = 0) -> str:
    return why_not_admitted(group(devices), queue, room(nodes, {}), {NEURON: Fraction(held)})


def test_the_pods_of_a_gang_that_fits_are_placed_on_one_node_each() -> None:
    found = place_gang([pod("a"), pod("b")], 0, 2, [node("x"), node("y")], {})
    assert sorted(found.nodes.values()) == ["x", "y"]
    assert not found.message


def test_no_pod_of_a_gang_is_placed_when_one_does_not_fit() -> None:
    found = place_gang([pod("a"), pod("b")], 0, 2, [node("x")], {})
    assert found.nodes == {}
    assert found.refusals == {"b": f"0/1 nodes are unavailable: 1 Insufficient {NEURON}."}
    assert found.message == (
        "2/2 tasks in gang unschedulable: pod group is not ready, 2 Pending, 2 minAvailable; "
        "Pending: 1 Schedulable, 1 Unschedulable"
    )


def test_pods_beyond_the_gangs_size_may_wait() -> None:
    found = place_gang([pod("a"), pod("b"), pod("c")], 0, 2, [node("x"), node("y")], {})
    assert len(found.nodes) == 2
    assert list(found.refusals) == ["c"]


def test_a_pod_made_again_joins_those_that_are_placed() -> None:
    found = place_gang([pod("b")], 1, 2, [node("x"), node("y")], {"x": Usage({NEURON: Fraction(16)}, 1)})
    assert found.nodes == {"b": "y"}


def test_placing_a_gang_on_trial_changes_nothing() -> None:
    usage = {"x": Usage({NEURON: Fraction(8)}, 1)}
    place_gang([pod("a", 8)], 0, 1, [node("x")], usage)
    assert usage["x"] == Usage({NEURON: Fraction(8)}, 1)


def test_a_gang_is_let_in_when_the_cluster_has_room() -> None:
    assert refusal(32, [node("x"), node("y")]) == ""
    assert refusal(32, [node("x")]) == "resource in cluster is overused"
    assert refusal(16, []) == "resource in cluster is overused"


def test_a_fifth_more_than_there_is_may_be_promised() -> None:
    assert refusal(19, [node("x")]) == ""
    assert refusal(20, [node("x")]) == "resource in cluster is overused"


def test_nodes_that_take_no_pods_are_no_room() -> None:
    assert refusal(16, [node("x", unschedulable=True)]) == "resource in cluster is overused"


def test_a_queue_has_to_exist_and_be_open() -> None:
    assert refusal(16, [node("x")], None) == "queue default not found"
    closed = {**OPEN, "status": {"state": "Closed"}}
    assert refusal(16, [node("x")], closed) == "queue default is not open"


def test_a_queue_admits_no_more_than_its_capability() -> None:
    small = {**OPEN, "spec": {"capability": {NEURON: "16"}}}
    assert refusal(16, [node("x"), node("y")], small) == ""
    assert refusal(16, [node("x"), node("y")], small, held=1) == "queue resource quota insufficient"
