"""What the nodes of a gang have measured, and which of them are unhealthy. Pure: `trainer.node_test` measures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median_high

LEAST_SHARE = 0.5
"""Share of the gang's median below which a node is unhealthy. Healthy nodes of one type differ by some percent; a gang
trains at the pace of its slowest node."""

FEWEST_TO_COMPARE = 3
"""Nodes without which the exchange between them is not compared: of two, both have the same."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What one process has measured, or all of a node."""

    gigabytes_per_second: float | None = None
    """None if nothing was measured."""
    error: str = ""
    """What failed; empty if nothing did."""


def of_node(processes: Sequence[Measured]) -> Measured:
    """The figure of a node: that of its slowest process, or an error of any of them."""
    errors = [each.error for each in processes if each.error]
    figures = [each.gigabytes_per_second for each in processes if each.gigabytes_per_second is not None]
    return Measured(gigabytes_per_second=min(figures, default=None), error=errors[0] if errors else "")


def better(first: Measured, second: Measured) -> Measured:
    """The better one of two measurements of the same node."""
    return max(first, second, key=lambda each: (not each.error, each.gigabytes_per_second or 0.0))


def unhealthy(nodes: Sequence[Measured], what: str, *, fewest: int = 2) -> dict[int, str]:
    """The unhealthy nodes by their number, each with a sentence.

    What fails on all nodes is no node's fault: the program's own error will say more.

    Args:
        nodes: What each node has measured.
        what: What was measured, as in "The memory of the devices".
        fewest: Number of nodes without which figures are not compared.
    """
    failed = {number: each.error for number, each in enumerate(nodes) if each.error}
    if len(failed) == len(nodes):
        return {}
    found = {number: f"{what} failed the test before the training: {error}" for number, error in failed.items()}
    figures = {
        number: each.gigabytes_per_second
        for number, each in enumerate(nodes)
        if each.gigabytes_per_second is not None and number not in failed
    }
    if len(figures) < fewest:
        return found
    typical = median_high(figures.values())
    for number, figure in figures.items():
        if figure < LEAST_SHARE * typical:
            found[number] = (
                f"{what} reached {figure:.3g} GB/s in the test before the training, and the median of the gang's "
                f"{len(nodes)} nodes is {typical:.3g} GB/s."
            )
    return dict(sorted(found.items()))


def rounds(num_nodes: int) -> list[list[tuple[int, int]]]:
    """Pairs of nodes that exchange data at the same time, in rounds in which every node has one partner at most.

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


def summary(memory: Mapping[int, Measured], exchange: Mapping[int, Measured], *, seconds: float) -> str:
    """A line about a healthy gang."""
    parts = [
        f"{name} {_range(figures)} GB/s"
        for name, measured in (("memory", memory), ("exchange", exchange))
        if (figures := [each.gigabytes_per_second for each in measured.values() if each.gigabytes_per_second])
    ]
    return f"Tested {len(memory)} nodes in {seconds:.1f} s: {', '.join(parts) or 'nothing could be measured'}."


def _range(figures: Sequence[float]) -> str:
    return f"{min(figures):.3g} to {max(figures):.3g}"
