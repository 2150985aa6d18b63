"""The nodes on which a run's jobs have failed, and those that its next jobs avoid because of it."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict

from trainflow.errors import NodeUnhealthy
from trainflow.failures.table import failure_table

MAX_NODES = 16
"""Nodes that a run remembers, and that it avoids: the newest ones. Where more fail, the nodes are not the reason."""

_FAILED_AT = re.compile(r"Pod '[^']{1,253}' on node '(?P<node>[A-Za-z0-9][A-Za-z0-9.-]{0,252})' ")
_NAMED_AT = re.compile(r"\(pod '[^']{1,253}' on node '(?P<node>[A-Za-z0-9][A-Za-z0-9.-]{0,252})'\)\Z")


def failed_at(pod: str, node: str | None) -> str:
    """Words with which the message about a failed pod begins."""
    return f"Pod '{pod}' on node '{node}'"


def named_at(pod: str, node: str | None) -> str:
    """Words with which the message of a program that named its own error ends."""
    return f"(pod '{pod}' on node '{node}')"


def failed_node(message: str) -> str | None:
    """The node in a message that one of the two functions above has a part in; None for other messages."""
    found = _FAILED_AT.match(message) or _NAMED_AT.search(message)
    return None if found is None or found["node"] == "None" else found["node"]


class FailedNodes(BaseModel):
    """Nodes on which a run's jobs have failed."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    suspected: tuple[str, ...] = ()
    """Nodes of one failure each, which may have had another reason than the node."""
    avoided: tuple[str, ...] = ()
    """Nodes that the run's next jobs do not use: one failure was the hardware's, or there were two of any class."""

    test_in_vain: bool = False
    """Whether the newest failure of the test before the training led to no node that had not been avoided before. As
    long as each one does, the test's failures are no restarts in vain: the next gang lacks one bad node more."""

    def after(self, *, error: str, message: str) -> FailedNodes:
        """The nodes after another job has failed.

        Args:
            error: Name of the error.
            message: Its message, which names the node if one node failed.
        """
        node = failed_node(message)
        found = self._with_failure(error, node)
        if error != NodeUnhealthy.__name__:
            return found
        # Where more than these fail, the nodes are not the reason.
        is_new = found.avoided != self.avoided and len(self.avoided) < MAX_NODES
        return found.model_copy(update={"test_in_vain": not is_new})

    def _with_failure(self, error: str, node: str | None) -> FailedNodes:
        failure = failure_table().classes.get(error)
        if node is None or node in self.avoided or failure is None or not failure.restart:
            return self
        if node in self.suspected or not failure.same_node:
            others = tuple(name for name in self.suspected if name != node)
            return self.model_copy(update={"suspected": others, "avoided": _with(self.avoided, node)})
        return self.model_copy(update={"suspected": _with(self.suspected, node)})


def _with(nodes: Sequence[str], node: str) -> tuple[str, ...]:
    return (*nodes, node)[-MAX_NODES:]
