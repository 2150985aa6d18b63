from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from kubetwin.node.restarts import CrashBackoff, is_restarted

START = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.mark.parametrize(
    ("policy", "exit_code", "restarted"),
    [("Never", 1, False), ("OnFailure", 1, True), ("OnFailure", 0, False), ("Always", 0, True)],
)
def test_the_policy_decides_about_a_restart(policy: str, exit_code: int, restarted: bool) -> None:
    assert is_restarted(policy, exit_code) is restarted


def test_the_first_restart_is_immediate_and_the_delay_doubles_to_five_minutes() -> None:
    backoff = CrashBackoff(timedelta(seconds=10))
    delays = [backoff.delay(START, START).total_seconds() for _ in range(8)]
    assert delays == [0, 10, 20, 40, 80, 160, 300, 300]


def test_a_long_run_makes_crashes_forgotten() -> None:
    backoff = CrashBackoff()
    for _ in range(3):
        backoff.delay(START, START)
    assert backoff.delay(START, START + timedelta(minutes=11)) == timedelta(0)
