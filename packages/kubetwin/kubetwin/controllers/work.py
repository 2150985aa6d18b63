"""A queue of keys to reconcile on the event loop; idle while nothing changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kubetwin.background import report
from kubetwin.model.errors import ApiError

Key = TypeVar("Key", bound=Hashable)

RETRY_SECONDS = 1.0


class WorkQueue(Generic[Key]):
    """Calls `reconcile` once for each key that was added, however often, in the order of the first addition.

    One key is handled in each turn of the event loop, so that requests are answered in between. A refused write
    (`ApiError`) and an unexpected exception are tried again after a second; the second is reported.
    """

    def __init__(self, reconcile: Callable[[Key], None]) -> None:
        self._reconcile = reconcile
        self._waiting: dict[Key, None] = {}
        self._timers: dict[Key, asyncio.TimerHandle] = {}
        self._scheduled = False

    def add(self, key: Key) -> None:
        self._waiting[key] = None
        if not self._scheduled:
            self._scheduled = True
            asyncio.get_running_loop().call_soon(self._turn)

    def add_after(self, key: Key, seconds: float) -> None:
        """Add a key later; of several wishes for one key the earliest wins."""
        loop = asyncio.get_running_loop()
        when = loop.time() + max(0.0, seconds)
        timer = self._timers.get(key)
        if timer is not None and timer.when() <= when and not timer.cancelled():
            return
        if timer is not None:
            timer.cancel()
        self._timers[key] = loop.call_at(when, self._due, key)

    def _due(self, key: Key) -> None:
        self._timers.pop(key, None)
        self.add(key)

    def _turn(self) -> None:
        key = next(iter(self._waiting))
        del self._waiting[key]
        self._scheduled = bool(self._waiting)
        if self._scheduled:
            asyncio.get_running_loop().call_soon(self._turn)
        try:
            self._reconcile(key)
        except ApiError:
            self.add_after(key, RETRY_SECONDS)
        except Exception as error:  # noqa: BLE001 (reported; the object may be readable after its next change)
            report(f"controller {getattr(self._reconcile, '__qualname__', 'of the cluster')}", error)
            self.add_after(key, RETRY_SECONDS)
