"""Lost nodes are lost sooner in the twin, and healthy ones never."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from local.node_times import NodeTimes, node_times


def test_at_full_time_they_are_those_of_kubernetes() -> None:
    assert node_times(1) == NodeTimes(grace_seconds=50, heartbeat_seconds=10, toleration_seconds=300)


def test_they_shrink_with_the_waits_of_the_twin() -> None:
    assert node_times(2) == NodeTimes(grace_seconds=25, heartbeat_seconds=5, toleration_seconds=150)
    assert node_times(30) == NodeTimes(grace_seconds=20, heartbeat_seconds=4, toleration_seconds=10)
    assert node_times(100) == NodeTimes(grace_seconds=20, heartbeat_seconds=4, toleration_seconds=8)


@given(st.floats(min_value=0.01, max_value=1e6))
def test_a_healthy_node_misses_five_heartbeats_before_it_is_lost_and_two_more_before_its_pods_are(scale: float) -> None:
    times = node_times(scale)
    assert times.grace_seconds >= 20
    assert times.grace_seconds >= 5 * times.heartbeat_seconds
    assert times.toleration_seconds >= 2 * times.heartbeat_seconds
