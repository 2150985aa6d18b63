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
from kubetwin.api.selection import BadVersion, page, parse_version, select, selected, version_too_large
from kubetwin.api.watching import Watch
from kubetwin.model.errors import Object, bad_request
from kubetwin.state.cluster import Cluster

FUTURE_WAIT_SECONDS = 3.0
"""Time that a list waits for a resourceVersion that does not exist yet (the watch cache's blockTimeout)."""


class Reader:
    """Answers reads from the store."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self._watches: set[Watch] = set()

    def close(self) -> None:
        """End all open watches."""
        for watch in list(self._watches):
            watch.close()

    def get(self, call: Call) -> Response:
        wanted = negotiate(call.headers.get("accept", ""), tables.KINDS)
        found = self.cluster.get(call.resource, call.info.namespace, call.info.name)
        include = tables.included(call.query)
        return respond(tables.present(call.resource, found, wanted, include=include), wanted=wanted)

    async def list(self, call: Call) -> Response:
        wanted = negotiate(call.headers.get("accept", ""), tables.KINDS)
        options = parse_list_options(call.query, watch=False)
        selection = select(call.resource, call.info, options)
        await self._reach_version(options)
        found = page(selected(self.cluster.store, call.resource, selection), options, self.cluster.store.revision)
        metadata: Object = {"resourceVersion": str(self.cluster.store.revision)}
        if found.continue_token:
            metadata["continue"] = found.continue_token
            if not selection.selects:
                metadata["remainingItemCount"] = found.remaining
        include = tables.included(call.query)
        return respond(
            tables.present_list(call.resource, found.items, metadata, wanted, include=include), wanted=wanted
        )

    async def _reach_version(self, options: ListOptions) -> None:
        try:
            version = parse_version(options.resource_version)
        except BadVersion as fault:
            raise bad_request(f"invalid resource version: {fault}") from None
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
