"""Watches: a window of past changes, then changes as they come, as JSON lines."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable

from kubetwin.api.negotiation import encode
from kubetwin.api.requests import ListOptions
from kubetwin.api.selection import BadVersion, Selection, parse_version, selected
from kubetwin.model.errors import ApiError, Object
from kubetwin.resources.resource import Resource
from kubetwin.store import Change, Store, TooOld

BOOKMARK_SECONDS = 60
_SHORTEST_DEFAULT_SECONDS = 1800  # kube-apiserver's --min-request-timeout; the default is up to twice as long

Present = Callable[[Object], Object]


def _seen(change: Change, selection: Selection) -> tuple[str, Object] | None:
    """The event of a change under this selection: an object that leaves the selection is reported as DELETED."""
    now = change.type != "DELETED" and selection.matches(change.object)
    before = change.previous is not None and selection.matches(change.previous)
    if now:
        return ("MODIFIED" if before else "ADDED"), change.object
    if not before:
        return None
    if change.type == "DELETED":
        return "DELETED", change.object
    last = change.previous or {}
    version = {"resourceVersion": str(change.revision)}
    return "DELETED", {**last, "metadata": {**last["metadata"], **version}}


class Watch:
    """One open watch.

    It listens from its creation, so that no change is lost between the history and the live changes.
    """

    def __init__(self, store: Store, resource: Resource, selection: Selection, options: ListOptions, present: Present):
        self.resource, self.selection, self.options, self.present = resource, selection, options, present
        self.store = store
        self.queue: asyncio.Queue[Change | None] = asyncio.Queue()
        self.backlog = self._backlog()
        self._stop_listening = store.listen(resource.key, self.queue.put_nowait)
        self.when_done: Callable[[], None] = lambda: None

    def _backlog(self) -> list[tuple[str, Object]]:
        try:
            start = parse_version(self.options.resource_version)
        except BadVersion as fault:
            raise ApiError(500, "", str(fault)) from None
        if start == 0 or self.options.send_initial_events:
            found = [("ADDED", obj) for obj in selected(self.store, self.resource, self.selection)]
            return [*found, ("BOOKMARK", self._bookmark(initial=True))] if self.options.send_initial_events else found
        try:
            changes = self.store.changes_since(self.resource.key, start)
        except TooOld as fault:
            return [("ERROR", ApiError(410, "Expired", str(fault)).body())]
        return [event for change in changes if (event := _seen(change, self.selection))]

    def close(self) -> None:
        """End the stream (from the server's side)."""
        self.queue.put_nowait(None)

    async def lines(self) -> AsyncIterator[bytes]:
        """Events as they shall be sent, until the time is up or the server closes."""
        loop = asyncio.get_running_loop()
        seconds = self.options.timeout_seconds
        if seconds is None:
            seconds = int(_SHORTEST_DEFAULT_SECONDS * (1 + random.random()))  # noqa: S311 (spreads reconnects)
        end = loop.time() + seconds
        try:
            if self.backlog:
                yield b"".join(self._line(kind, obj) for kind, obj in self.backlog)
            if self.backlog and self.backlog[-1][0] == "ERROR":
                return
            while (left := end - loop.time()) > 0:
                try:
                    change = await asyncio.wait_for(self.queue.get(), min(left, BOOKMARK_SECONDS))
                except TimeoutError:
                    if self.options.bookmarks:
                        yield self._line("BOOKMARK", self._bookmark())
                    continue
                if change is None:
                    return
                if lines := self._lines_of(change):
                    yield lines
        finally:
            self._stop_listening()
            self.when_done()

    def _lines_of(self, change: Change | None) -> bytes:
        """The change and all queued ones after it, as one write."""
        lines = []
        while change is not None:
            if event := _seen(change, self.selection):
                lines.append(self._line(*event))
            if self.queue.empty():
                break
            change = self.queue.get_nowait()
        else:
            self.close()
        return b"".join(lines)

    def _line(self, kind: str, obj: Object) -> bytes:
        shown = obj if kind in ("BOOKMARK", "ERROR") else self.present(obj)
        return encode({"type": kind, "object": shown}) + b"\n"

    def _bookmark(self, *, initial: bool = False) -> Object:
        metadata: Object = {"resourceVersion": str(self.store.revision), "creationTimestamp": None}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return {"kind": self.resource.kind, "apiVersion": self.resource.group_version, "metadata": metadata}
