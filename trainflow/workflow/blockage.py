"""The runs that have to end before another one can have its nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

MAX_RUNS = 10
"""Most runs that are named: the answer is kept in the execution's history."""


@dataclass(frozen=True, kw_only=True)
class Blockage:
    """The reason why a run waits although nodes can be had: others have them."""

    maximum: int | None
    """Most nodes of the type that all runs can have at once; None if the cluster decides it, which makes nodes for one
    waiting run after the other."""
    held: Mapping[str, int]
    """Nodes of each run that has some; the largest runs if there are many."""
    num_held: int
    """Nodes of all of them."""
    ahead: tuple[str, ...] = ()
    """Waiting runs that are served before this one; the first ones if there are many."""
    num_ahead: int = 0
    """Number of all of them."""

    def as_json(self) -> dict[str, Any]:
        """The JSON document in the answer of EnsureCapacity."""
        return {**asdict(self), "held": dict(self.held), "ahead": list(self.ahead)}


def read_blockage(document: Any) -> Blockage | None:
    """Parse the JSON document; None for null, and for an answer of a version without it."""
    if not isinstance(document, Mapping):
        return None
    return Blockage(
        maximum=None if document["maximum"] is None else int(document["maximum"]),
        held={str(run): int(nodes) for run, nodes in document["held"].items()},
        num_held=int(document["num_held"]),
        ahead=tuple(map(str, document["ahead"])),
        num_ahead=int(document["num_ahead"]),
    )
