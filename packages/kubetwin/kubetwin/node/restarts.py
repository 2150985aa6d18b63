"""Restart policy and back-off of containers. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

DEFAULT_BACKOFF = timedelta(seconds=2)
"""First delay. A kubelet's is 10 s; the contract recordings were made with 2 s."""

_MAX_BACKOFF = timedelta(minutes=5)
_FORGET_AFTER = timedelta(minutes=10)
"""Both from the Kubernetes documentation (Pod Lifecycle, container restart policy)."""


def is_restarted(restart_policy: str, exit_code: int) -> bool:
    """Whether the policy restarts the container."""
    return restart_policy == "Always" or (restart_policy == "OnFailure" and exit_code != 0)


@dataclass
class CrashBackoff:
    """Delays between the runs of one container: none before the second, then doubling."""

    base: timedelta = DEFAULT_BACKOFF
    _next: timedelta = timedelta(0)

    def delay(self, started_at: datetime, finished_at: datetime) -> timedelta:
        """Delay after a run; a long run resets the back-off."""
        if finished_at - started_at > _FORGET_AFTER:
            self._next = timedelta(0)
        delay = self._next
        self._next = min(max(self.base, delay * 2), _MAX_BACKOFF)
        return delay
