"""The order of the waiting runs for the nodes of an instance type.

A gang gets all of its nodes or none, so nodes are requested for whole gangs only: a part of one would be idle, and
billed, until another run ends (docs/decisions/0094-nodes-for-whole-gangs.md).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from trainflow.nodes.training_nodes import Claim
from trainflow.workflow.blockage import MAX_RUNS, Blockage


@dataclass(frozen=True, kw_only=True)
class NodeQueue:
    """The runs that need nodes of one instance type."""

    holding: tuple[Claim, ...]
    """Runs that have been granted their nodes."""
    served: tuple[Claim, ...]
    """Waiting runs whose gangs fit beside those, in the order of their grants."""
    blocked: tuple[Claim, ...]
    """Waiting runs that need nodes of a run that holds them, in the order of their claims."""
    maximum: int
    """Most nodes that all of them can have at once."""

    @property
    def num_nodes(self) -> int:
        """Nodes that can be used now: those of the runs that hold some, and of the next ones whose gangs fit."""
        return sum(claim.num_nodes for claim in (*self.holding, *self.served))

    def available(self, run_id: str, *, nodes_ready: int) -> int:
        """The ready nodes that are left for a run.

        Args:
            run_id: The run.
            nodes_ready: Ready nodes of the type, of all runs.
        """
        if any(claim.run_id == run_id for claim in self.blocked):
            return 0
        before = [claim for claim in self.holding if claim.run_id != run_id]
        if all(claim.run_id != run_id for claim in self.holding):
            before += _earlier(run_id, self.served)
        return max(nodes_ready - sum(claim.num_nodes for claim in before), 0)

    def held_by_others(self, run_id: str) -> dict[str, int]:
        """The nodes that other runs have been granted."""
        return {claim.run_id: claim.num_nodes for claim in self.holding if claim.run_id != run_id}

    def blockage(self, run_id: str) -> Blockage | None:
        """The runs that a blocked run waits for; None of a run that is not blocked."""
        if all(claim.run_id != run_id for claim in self.blocked):
            return None
        ahead = [claim.run_id for claim in _earlier(run_id, self.blocked)]
        largest = sorted((*self.holding, *self.served), key=lambda claim: -claim.num_nodes)
        return Blockage(
            maximum=self.maximum,
            held={claim.run_id: claim.num_nodes for claim in largest[:MAX_RUNS]},
            num_held=self.num_nodes,
            ahead=tuple(ahead[:MAX_RUNS]),
            num_ahead=len(ahead),
        )


def node_queue(claims: Iterable[Claim], *, granted: Collection[str], maximum: int) -> NodeQueue:
    """Decide who is served next.

    Runs are served in the order of their claims. A later run overtakes one that is blocked only if it does not delay
    it: whichever runs end first, the blocked one then finds its nodes as early as without the later run.

    Args:
        claims: The claims on the type.
        granted: Runs that have been granted their nodes; a grant without a claim counts for nothing.
        maximum: Most nodes that runs can have at once: the group's maximum without its unusable nodes.
    """
    in_order = sorted(claims, key=lambda claim: (claim.created_at, claim.name))
    holding = [claim for claim in in_order if claim.run_id in granted]
    served: list[Claim] = []
    blocked: list[Claim] = []
    for claim in in_order:
        if claim.run_id in granted:
            continue
        before = [*holding, *served]
        fits = sum(each.num_nodes for each in before) + claim.num_nodes <= maximum
        # A gang that is too large for the usable nodes keeps no other from starting: it may never fit.
        first = next((each for each in blocked if each.num_nodes <= maximum), None)
        if fits and (first is None or _delays_nothing(claim, first, before, maximum)):
            served.append(claim)
        else:
            blocked.append(claim)
    return NodeQueue(holding=tuple(holding), served=tuple(served), blocked=tuple(blocked), maximum=maximum)


def _delays_nothing(later: Claim, first_blocked: Claim, before: Sequence[Claim], maximum: int) -> bool:
    """Whether the blocked run can start as early with the later run as without it.

    Without it, the blocked run starts as soon as the runs that are left need at most `room`. That may be any set of
    them that fits, so the largest such set has to leave enough for the later run, too.
    """
    room = maximum - first_blocked.num_nodes
    sums = {0}
    for claim in before:
        sums |= {each + claim.num_nodes for each in sums if each + claim.num_nodes <= room}
    return max(sums) + later.num_nodes <= room


def _earlier(run_id: str, claims: Sequence[Claim]) -> list[Claim]:
    place = next((index for index, claim in enumerate(claims) if claim.run_id == run_id), 0)
    return list(claims[:place])
