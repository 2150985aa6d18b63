"""How long a pod may stay on a node with taints NoExecute."""

from __future__ import annotations

from typing import Any

import pytest
from kubetwin.controllers.taint_eviction import seconds_tolerated

UNREACHABLE, OTHER = "node.kubernetes.io/unreachable", "example.com/broken"


def toleration(key: str | None, seconds: int | None = None, effect: str = "NoExecute") -> dict[str, Any]:
    found: dict[str, Any] = {"operator": "Exists"}
    return (
        found
        | ({"key": key} if key else {})
        | ({"effect": effect} if effect else {})
        | ({"tolerationSeconds": seconds} if seconds is not None else {})
    )


@pytest.mark.parametrize(
    ("tolerations", "taints", "seconds"),
    [
        ([], [UNREACHABLE], 300),
        ([toleration(UNREACHABLE, 60)], [UNREACHABLE], 60),
        ([toleration(UNREACHABLE)], [UNREACHABLE], None),
        ([], [OTHER], 0),
        ([toleration(OTHER, effect="NoSchedule")], [OTHER], 0),
        ([toleration(OTHER, 20)], [UNREACHABLE, OTHER], 20),
        ([toleration(OTHER)], [UNREACHABLE, OTHER], 300),
    ],
)
def test_the_shortest_toleration_counts_and_lost_nodes_are_tolerated_for_five_minutes(
    tolerations: list[dict[str, Any]], taints: list[str], seconds: float | None
) -> None:
    pod = {"spec": {"tolerations": tolerations}}
    assert seconds_tolerated(pod, [{"key": key, "effect": "NoExecute"} for key in taints]) == seconds
