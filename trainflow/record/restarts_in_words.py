"""The restarts of a run in words: their number and reasons, and what they have cost."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from trainflow.record.wording import count
from trainflow.workflow.restart import Restart

LOST_NODE = "NodeLost"
"""Error of a node that has gone (`trainflow/failures/errors.toml`)."""

NAMED = 3
"""Restarts whose steps are named: the newest ones."""


def restarts_in_words(restarts: Sequence[Restart], avoided_nodes: Sequence[str] = ()) -> str:
    """The number of restarts of a run, their reasons, the lost nodes and steps, and the nodes that it avoids since.

    Args:
        restarts: One restart or more.
        avoided_nodes: Nodes that the run does not use any more.
    """
    reasons = list(dict.fromkeys(restart.error for restart in restarts))
    text = f"Restarted {count(len(restarts), 'time')} after {', '.join(reasons)}{_in_pods(restarts)}"
    return (
        "; ".join([text, *_losses(restarts), *([f"avoided {', '.join(avoided_nodes)}"] if avoided_nodes else [])]) + "."
    )


def _in_pods(restarts: Sequence[Restart]) -> str:
    in_place = sum(restart.in_place for restart in restarts)
    if not in_place:
        return ""
    return " in its pods" if in_place == len(restarts) else f", {in_place} of them in its pods"


def _losses(restarts: Sequence[Restart]) -> Iterator[str]:
    nodes = dict.fromkeys(restart.node for restart in restarts if restart.error == LOST_NODE and restart.node)
    if nodes:
        yield f"lost {', '.join(nodes)}"
    steps = [
        f"from {restart.last_step:,} to {restart.next_step:,}"
        for restart in restarts[-NAMED:]
        if restart.last_step is not None and restart.next_step is not None
    ]
    if steps:
        yield f"the step went back {', '.join(steps)}"
