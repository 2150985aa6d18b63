"""Several nodes of one process, started and stopped together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from kubetwin.node.agent import ProcessNode


@contextmanager
def running(nodes: Sequence[ProcessNode]) -> Iterator[None]:
    """Run the nodes: they are Ready inside the block and removed from the cluster after it."""
    with ThreadPoolExecutor(max_workers=max(1, len(nodes)), thread_name_prefix="fleet") as pool:
        started = [(node, pool.submit(node.start)) for node in nodes]
        try:
            for _, start in started:
                start.result()
            yield
        finally:
            ready = [node for node, start in started if start.exception() is None]
            list(pool.map(ProcessNode.stop, ready))
