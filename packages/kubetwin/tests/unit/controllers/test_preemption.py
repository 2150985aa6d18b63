"""The pods that give way to one of higher priority."""

from __future__ import annotations

from typing import Any

from kubetwin.controllers.preemption import preempt


def node(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": spec, "status": {"allocatable": {"cpu": "4", "pods": "10"}}}


def pod(name: str, cpu: int, priority: int = 0, *, deleted: bool = False, **spec: Any) -> dict[str, Any]:
    containers = [{"resources": {"requests": {"cpu": str(cpu)}}}]
    metadata = {"name": name, **({"deletionTimestamp": "2026-11-21T12:00:00Z"} if deleted else {})}
    return {"metadata": metadata, "spec": {"priority": priority, "containers": containers, **spec}, "status": {}}


def victims(wanted: dict[str, Any], nodes: list[dict[str, Any]], **pods: list[dict[str, Any]]) -> tuple[str, list[str]]:
    found = preempt(wanted, nodes, pods)
    return (found.node, [victim["metadata"]["name"] for victim in found.victims]) if found else ("", [])


def test_only_as_many_pods_give_way_as_are_needed_those_of_low_priority_first() -> None:
    present = [pod("low", 1, 1), pod("middle", 1, 5), pod("lowest", 1, 0), pod("other", 1, 5)]
    assert victims(pod("new", 2, 10), [node("a")], a=present) == ("a", ["low", "lowest"])


def test_pods_of_the_same_or_a_higher_priority_stay() -> None:
    assert victims(pod("new", 4, 10), [node("a")], a=[pod("same", 1, 10)]) == ("", [])
    assert victims(pod("new", 2), [node("a")], a=[pod("same", 4)]) == ("", [])


def test_the_node_that_loses_the_pods_of_the_lowest_priority_is_chosen() -> None:
    nodes = [node("a"), node("b")]
    assert victims(pod("new", 4, 10), nodes, a=[pod("x", 4, 7)], b=[pod("y", 4, 3)]) == ("b", ["y"])


def test_a_node_that_refuses_the_pod_for_another_reason_loses_none() -> None:
    tainted = node("a", taints=[{"key": "k", "effect": "NoSchedule"}])
    assert victims(pod("new", 4, 10), [tainted], a=[pod("x", 4)]) == ("", [])


def test_a_pod_that_must_not_preempt_or_whose_victims_are_ending_preempts_none() -> None:
    assert victims(pod("new", 4, 10, preemptionPolicy="Never"), [node("a")], a=[pod("x", 4)]) == ("", [])
    waiting = pod("new", 4, 10)
    waiting["status"] = {"nominatedNodeName": "a"}
    nodes = [node("a"), node("b")]
    assert victims(waiting, nodes, a=[pod("x", 4, deleted=True)], b=[pod("y", 4)]) == ("", [])
