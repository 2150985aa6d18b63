"""Nodes that had failed jobs of a run, and the nodes that its next jobs therefore avoid."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from pydantic import BaseModel, ConfigDict

from trainflow.errors import NodeUnhealthy
from trainflow.failures.error_table import error_table

MAX_NODES = 16
"""Nodes that a run remembers, and that it avoids: the newest ones. Where more fail, the nodes are not the reason."""


def refutation(nodes: Sequence[str]) -> str:
    """The sentence for people about nodes that a test named in a row."""
    return (
        f"The test of the nodes fails wherever it runs: in attempts in a row it found {' and '.join(nodes)} unhealthy. "
        "The run goes on without the test, and uses the nodes again that only the test had named."
    )


# Decisions 44 and 74: these failures prove a node bad; the test of the nodes only advises.
def proves_node_bad(error: str) -> bool:
    """Whether a failure of this name proves that its node is bad. The test before the training only advises."""
    failure = error_table().get(error)
    return failure is not None and not failure.same_node and error != NodeUnhealthy.__name__


class FailedNodes(BaseModel):
    """Nodes that had failed jobs of a run."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    suspected: tuple[str, ...] = ()
    """Nodes of one failure each, which may have had another reason than the node."""
    avoided: tuple[str, ...] = ()
    """Nodes that the run's next jobs do not use: one failure was the hardware's, or there were two of any class."""
    unproven: tuple[str, ...] = ()
    """Avoided nodes whose two failures may have had another reason, or that only a test found unhealthy. They are used
    again if other nodes have too little room."""

    by_test: tuple[str, ...] = ()
    """The avoided nodes that only the test before the training found unhealthy."""
    test_failed_on: str | None = None
    """The node that the test named in the newest attempt; None if that attempt failed otherwise."""
    test_refuted_by: tuple[str, ...] = ()
    """Two nodes that the test named in two attempts in a row: it fails wherever it runs, which is evidence against the
    test. The run goes on without it, and uses the nodes again that only the test had named."""

    def after(self, *, error: str, node: str | None) -> FailedNodes:
        """The nodes after another job has failed.

        Args:
            error: Name of the error.
            node: The node of the pod that failed first; None if no node failed.
        """
        if error != NodeUnhealthy.__name__:
            return self._with_failure(error, node).model_copy(update={"test_failed_on": None})
        if node is not None and self.test_failed_on not in (None, node):
            return self._without_test((self.test_failed_on, node))
        found = self._with_failure(error, node)
        by_test = (*self.by_test, *(name for name in found.avoided if name not in self.avoided))
        return found.model_copy(
            update={"test_failed_on": node, "by_test": tuple(name for name in by_test if name in found.avoided)}
        )

    def _without_test(self, nodes: tuple[str | None, str]) -> FailedNodes:
        return self.model_copy(
            update={
                "avoided": _without(self.avoided, *self.by_test),
                "unproven": _without(self.unproven, *self.by_test),
                "by_test": (),
                "test_failed_on": None,
                "test_refuted_by": nodes,
            }
        )

    def _with_failure(self, error: str, node: str | None) -> FailedNodes:
        failure = error_table().get(error)
        if node is None or node in self.avoided or failure is None or not failure.restart:
            return self
        if node not in self.suspected and failure.same_node:
            return self.model_copy(update={"suspected": _with(self.suspected, node)})
        avoided = _with(self.avoided, node)
        unproven = self.unproven if proves_node_bad(error) else _with(self.unproven, node)
        return self.model_copy(
            update={
                "suspected": _without(self.suspected, node),
                "avoided": avoided,
                "unproven": tuple(name for name in unproven if name in avoided),
            }
        )

    def used_again(self, nodes: Collection[str]) -> FailedNodes:
        """The nodes after the run has given up avoiding some of them: one more failure, and it avoids them again."""
        return self.model_copy(
            update={
                "suspected": (*self.suspected, *(name for name in self.avoided if name in nodes))[-MAX_NODES:],
                "avoided": _without(self.avoided, *nodes),
                "unproven": _without(self.unproven, *nodes),
                "by_test": _without(self.by_test, *nodes),
            }
        )


def _with(nodes: Sequence[str], node: str) -> tuple[str, ...]:
    return (*nodes, node)[-MAX_NODES:]


def _without(nodes: Sequence[str], *others: str) -> tuple[str, ...]:
    return tuple(name for name in nodes if name not in others)
