"""Watching a job costs the same whatever its size: requests as the API server counts them, and what travels.

Two sizes are enough here: a cost that grew with the nodes would differ between 2 and 128. `benchmarks/scale.py` has
1,024 nodes.
"""

from __future__ import annotations

import pytest

from benchmarks import scale

MAX_PAYLOAD_BYTES = 8 * 1024

pytestmark = pytest.mark.slow


def test_looks_cost_as_many_requests_and_carry_as_little_with_128_nodes_as_with_2() -> None:
    with scale.measuring((2, 128)) as gangs:
        once = {
            "PollJob": {"GET jobs": 1},
            "LocateRank0": {"LIST pods": 1},
            "PublishMetrics": {"GET pods/log": 1},
        }
        assert {size: gang.calls() for size, gang in gangs.items()} == {2: once, 128: once}
        for size, gang in gangs.items():
            assert gang.cursor.last_step is not None
            assert gang.rank0.startswith(f"{gang.job.name}-0-")
            assert gang.scan_logs() == gang.rank0, f"{size} nodes"
            assert gang.payload_bytes < MAX_PAYLOAD_BYTES
