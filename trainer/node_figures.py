"""Judge the measurements of a gang's nodes. Pure: `trainer.node_test` measures.

Only a positive sign names a node: it is much slower than its peers, or it fails or hangs while they succeed. Trouble of
half of the gang, or of all of it, does not count against a node, and the gang trains.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median_high

LEAST_SHARE = 0.5
"""Nodes below this share of the gang's median are unhealthy. Healthy nodes of one type differ by some percent; a gang
trains at the pace of its slowest node."""

FEWEST_TO_COMPARE = 3
"""Minimum number of nodes for comparing the exchange between them: two nodes have the same figure."""

TIMES_LONGER = 20.0
"""A node hangs if it needs so many times as long as the slowest of those that have measured the same."""

LEAST_LIMIT_SECONDS = 30.0
"""A node hangs after so long at the earliest: a measurement often takes less than a second, and other programs may hold
a node up for longer."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """Measurement of one process, or of all processes of a node."""

    gigabytes_per_second: float | None = None
    """None if nothing was measured."""
    error: str = ""
    """The failure; empty without one."""
    seconds: float = 0.0
    """Duration of the measurement."""
    is_late: bool = False
    """Whether the answer is missing."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Conclusion from the figures of all nodes."""

    unhealthy: Mapping[int, str] = field(default_factory=dict)
    """A sentence for each unhealthy node, by its number."""
    inconclusive: str = ""
    """Reason why the test names no node although a measurement failed or was slow; empty otherwise."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """A part of the test."""

    name: str
    of_node: str
    """The measured quantity, for a sentence about one node."""
    of_gang: str
    """The same, for a sentence about the gang."""
    needs_partners: bool
    """Whether a node that fails or hangs holds up others."""


MEMORY = Part(
    name="memory",
    of_node="The memory of this node's devices",
    of_gang="The memory of the devices",
    needs_partners=False,
)
EXCHANGE = Part(
    name="exchange",
    of_node="The exchange of data with this node's neighbours in the gang",
    of_gang="The exchange of data between nodes",
    needs_partners=True,
)
PARTS = (MEMORY, EXCHANGE)


def of_node(processes: Sequence[Measured | None]) -> Measured:
    """The figure of a node: that of its slowest process, an error of any of them, or late if one has not answered."""
    answers = [each for each in processes if each is not None]
    errors = [each.error for each in answers if each.error]
    figures = [each.gigabytes_per_second for each in answers if each.gigabytes_per_second is not None]
    return Measured(
        gigabytes_per_second=min(figures, default=None),
        error=errors[0] if errors else "",
        seconds=max((each.seconds for each in answers), default=0.0),
        is_late=not errors and len(answers) < len(processes),
    )


def better(first: Measured, second: Measured) -> Measured:
    """The better one of two measurements of the same node."""
    return max(first, second, key=lambda each: (not each.error, each.gigabytes_per_second or 0.0))


def limit_seconds(longest: float) -> float:
    """Seconds until a node without a measurement counts as hanging.

    Args:
        longest: Longest duration that any node has needed for the same, in seconds.
    """
    return max(LEAST_LIMIT_SECONDS, TIMES_LONGER * longest)


def finding(nodes: Sequence[Measured], part: Part, *, seconds: float = 0.0) -> Finding:
    """The finding of a measurement.

    Args:
        nodes: Measurement of each node.
        part: The measured part.
        seconds: Seconds that late nodes have been waited for.
    """
    broken = _broken(nodes, part, seconds=seconds)
    slow = _slow(nodes, part)
    named = _cause(broken, nodes) if part.needs_partners and broken else broken | slow
    if named and _are_few(named, nodes):
        return Finding(unhealthy=dict(sorted(named.items())))
    if broken or slow:
        return Finding(inconclusive=_inconclusive(nodes, part, {*broken, *slow}))
    return Finding()


def finding_of_start(nodes: Sequence[Measured], part: Part) -> Finding:
    """The finding of a part's preparation: an error of a node is its own, unless the nodes need each other for it."""
    failed = {number for number, each in enumerate(nodes) if each.error}
    if failed and part.needs_partners:
        return Finding(inconclusive=_inconclusive(nodes, part, failed))
    return finding(nodes, part)


def _broken(nodes: Sequence[Measured], part: Part, *, seconds: float) -> dict[int, str]:
    longest = max((each.seconds for each in nodes if not each.is_late), default=0.0)
    late = (
        f"{part.of_node} has not been measured in the test before the training after {seconds:.0f} seconds; other "
        f"nodes of the gang took {longest:.1f} seconds at most."
    )
    failed = {
        number: f"{part.of_node} failed the test before the training: {each.error}"
        for number, each in enumerate(nodes)
        if each.error
    }
    return failed | {number: late for number, each in enumerate(nodes) if each.is_late}


def _slow(nodes: Sequence[Measured], part: Part) -> dict[int, str]:
    figures = {
        number: each.gigabytes_per_second
        for number, each in enumerate(nodes)
        if each.gigabytes_per_second is not None and not each.error and not each.is_late
    }
    if len(figures) < (FEWEST_TO_COMPARE if part.needs_partners else 2):
        return {}
    typical = median_high(figures.values())
    return {
        number: f"{part.of_node} reached {figure:.3g} GB/s in the test before the training, and the median of the "
        f"gang's {len(nodes)} nodes is {typical:.3g} GB/s."
        for number, figure in figures.items()
        if figure < LEAST_SHARE * typical
    }


def _cause(broken: Mapping[int, str], nodes: Sequence[Measured]) -> dict[int, str]:
    """The node that explains all others that fail or hang in the exchange, if there is one: these are its partners."""
    failed = [number for number in broken if nodes[number].error]
    suspects = failed or list(broken)
    if len(suspects) != 1 or len(broken) == len(nodes):
        return {}
    (suspect,) = suspects
    return {suspect: broken[suspect]} if {*broken} <= {suspect, *neighbours(suspect, len(nodes))} else {}


def _are_few(found: Collection[int], nodes: Sequence[Measured]) -> bool:
    """Whether the other nodes are evidence: one node differs from the rest, or less than half of the gang does."""
    return len(found) == 1 < len(nodes) or 2 * len(found) < len(nodes)


def _inconclusive(nodes: Sequence[Measured], part: Part, wrong: Collection[int]) -> str:
    error = next((f" ({each.error})" for each in nodes if each.error), "")
    return (
        f"{part.of_gang} failed the test before the training, or was slow, on {len(wrong)} of {len(nodes)} nodes"
        f"{error}, so the test names no node, and the training starts."
    )


def neighbours(node: int, num_nodes: int) -> set[int]:
    """The partners of a node in the ring of all."""
    return {(node - 1) % num_nodes, (node + 1) % num_nodes} - {node}


def rounds(num_nodes: int) -> list[list[tuple[int, int]]]:
    """Pairs of nodes that exchange data at the same time, in rounds with at most one partner for every node.

    The pairs form a ring, so a node has two partners (one, in a gang of two): where it fails with both, while each of
    them succeeds with its other partner, the node is the reason.
    """
    if num_nodes < 2:
        return []
    if num_nodes == 2:
        return [[(0, 1)]]
    ring = [(number, (number + 1) % num_nodes) for number in range(num_nodes)]
    last = [ring.pop()] if num_nodes % 2 else []
    return [ring[0::2], ring[1::2], *([last] if last else [])]


def partners(node: int, num_nodes: int) -> list[int]:
    """The partners of a node, in the order of the rounds."""
    pairs = (pair for each in rounds(num_nodes) for pair in each if node in pair)
    return [second if first == node else first for first, second in pairs]


def summary(measured: Mapping[str, Sequence[Measured]], *, seconds: float) -> str:
    """A line about a healthy gang.

    Args:
        measured: What the nodes have measured, by the name of the part.
        seconds: Duration of the test.
    """
    num_nodes = max((len(nodes) for nodes in measured.values()), default=0)
    parts = [
        f"{name} {_range(figures)} GB/s"
        for name, nodes in measured.items()
        if (figures := [each.gigabytes_per_second for each in nodes if each.gigabytes_per_second])
    ]
    return f"Tested {num_nodes} nodes in {seconds:.1f} s: {', '.join(parts) or 'nothing could be measured'}."


def _range(figures: Sequence[float]) -> str:
    return f"{min(figures):.3g} to {max(figures):.3g}"
