"""get, list and watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from starlette.responses import Response, StreamingResponse

from kubetwin.api import tables
from kubetwin.api.call import Call
from kubetwin.api.negotiation import negotiate, respond
from kubetwin.api.requests import ListOptions, parse_list_options
from kubetwin.api.selection import (
    BadVersion,
    Selection,
    decode_token,
    list_expired,
    page,
    parse_version,
    select,
    selected,
    version_too_large,
)
from kubetwin.api.watching import Watch
from kubetwin.model.errors import ApiError, Object, bad_request
from kubetwin.state.cluster import Cluster
from kubetwin.store import TooOld

FUTURE_WAIT_SECONDS = 3.0
"""Time that a list waits for a resourceVersion that does not exist yet (the watch cache's blockTimeout)."""

Objects = list[Object]


class Reader:
    """Answers reads from the store."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._watches: set[Watch] = set()

    def close(self) -> None:
        """End all open watches."""
        for watch in list(self._watches):
            watch.close()

    async def get(self, call: Call) -> Response:
        wanted = negotiate(call.headers.get("accept", ""), tables.KINDS)
        if version := call.query.get("resourceVersion"):
            try:
                await self._reach_version(parse_version(version))
            except BadVersion as fault:
                raise ApiError(500, "", str(fault)) from None
        found = self.cluster.get(call.resource, call.info.namespace, call.info.name)
        include = tables.included(call.query)
        return respond(tables.present(call.resource, found, wanted, include=include), wanted=wanted)

    async def list(self, call: Call) -> Response:
        wanted = negotiate(call.headers.get("accept", ""), tables.KINDS)
        options = parse_list_options(call.query, watch=False)
        selection = select(call.resource, call.info, options)
        try:
            await self._reach_version(parse_version(options.resource_version))
        except BadVersion as fault:
            raise bad_request(f"invalid resource version: {fault}") from None
        revision, objects = self._snapshot(call, options, selection)
        found = page(objects, options, revision)
        metadata: Object = {"resourceVersion": str(revision)}
        if found.continue_token:
            metadata["continue"] = found.continue_token
            if not selection.selects:
                metadata["remainingItemCount"] = found.remaining
        include = tables.included(call.query)
        return respond(
            tables.present_list(call.resource, found.items, metadata, wanted, include=include), wanted=wanted
        )

    def _snapshot(self, call: Call, options: ListOptions, selection: Selection) -> tuple[int, Objects]:
        """The selected objects, and the revision whose they are: that of the first page, or the exact one requested.

        Raises:
            ApiError: 410 if that is too long ago.
        """
        store, revision = self.cluster.store, -1
        if options.continue_token:
            revision = decode_token(options.continue_token).revision
        elif options.resource_version_match == "Exact":
            revision = parse_version(options.resource_version)
        if not 0 <= revision < store.revision:
            return store.revision, selected(store, call.resource, selection)
        try:
            return revision, [o for o in store.objects_at(call.resource.key, revision) if selection.matches(o)]
        except TooOld:
            raise list_expired(options) from None

    async def _reach_version(self, version: int) -> None:
        if version <= self.cluster.store.revision:
            return
        reached = asyncio.Event()
        stop = self.cluster.store.listen("", lambda change: reached.set() if change.revision >= version else None)
        try:
            await asyncio.wait_for(reached.wait(), FUTURE_WAIT_SECONDS)
        except TimeoutError:
            raise version_too_large(version, self.cluster.store.revision) from None
        finally:
            stop()

    def watch(self, call: Call) -> Response:
        wanted = negotiate(call.headers.get("accept", ""), tables.KINDS)
        options = parse_list_options(call.query, watch=True)
        selection = select(call.resource, call.info, options)
        present: Callable[[Object], Object] = partial(
            tables.present, call.resource, wanted=wanted, include=tables.included(call.query)
        )
        watch = Watch(self.cluster.store, call.resource, selection, options, present)
        self._watches.add(watch)
        watch.when_done = partial(self._watches.discard, watch)
        return StreamingResponse(watch.lines(), media_type="application/json")
