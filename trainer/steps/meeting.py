"""Votes of a gang's nodes about a restart of the program, in a folder of the run on the shared file system."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from trainer.runtime.files import written_whole

POLL_SECONDS = 0.25

SECONDS_FOR_CAUSE = 40.0
"""Time for a node that knows the cause: torchrun gives the other ranks of the node 30 seconds to end."""

SECONDS_FOR_ALL = 60.0
"""Time for all nodes to end their programs once the cause is known. Then the pod ends, and the workflow restarts the
job."""


class Verdict(Enum):
    """Reason of the end of the program on one node."""

    CAUSE = "cause"
    """A signal from outside ended a rank: another start may go well."""
    UNKNOWN = "unknown"
    """The program ended by itself: it may have lost a rank of another node."""
    ENDED = "ended"
    """This node has ended the program for a restart."""
    FINAL = "final"
    """The gang is not restarted in its pods, whatever other nodes find."""


@dataclass(frozen=True, kw_only=True)
class Vote:
    """The vote of a node."""

    verdict: Verdict
    reason: str = ""


class Meeting:
    """One round of a gang: the time between a start of the program and the decision about the next one."""

    def __init__(self, folder: Path | None, *, node: int, num_nodes: int) -> None:
        """
        Args:
            folder: Folder of this round's votes; None for a gang of one node.
            node: Number of this node.
            num_nodes: Size of the gang.
        """
        self._folder, self._node, self._num_nodes = folder, node, num_nodes
        self._own: Vote | None = None

    def vote(self, vote: Vote) -> None:
        """Give this node's vote.

        Raises:
            OSError: If it cannot be written.
        """
        self._own = vote
        if self._folder is None:
            return
        with written_whole(self._folder / f"{self._node}.json") as file:
            file.write(json.dumps({"verdict": vote.verdict.value, "reason": vote.reason}).encode())

    def votes(self) -> Mapping[int, Vote]:
        """The votes so far.

        Raises:
            OSError, ValueError, TypeError, KeyError: If they cannot be read.
        """
        found = {} if self._own is None else {self._node: self._own}
        if self._folder is None or not self._folder.exists():
            return found
        for name in os.listdir(self._folder):  # noqa: PTH208  (a listing is newer than what NFS knows of one name)
            number = name.removesuffix(".json")
            if number.isdecimal() and int(number) not in found:
                said = json.loads((self._folder / name).read_text(encoding="utf-8"))
                found[int(number)] = Vote(verdict=Verdict(said["verdict"]), reason=str(said["reason"]))
        return found

    def cause(self) -> tuple[int, str] | None:
        """The node with a cause, and its reason; None while no node knows one."""
        causes = [(node, vote.reason) for node, vote in self.votes().items() if vote.verdict is Verdict.CAUSE]
        return min(causes, default=None)

    def agrees(self, *, is_stopping: Callable[[], bool]) -> bool:
        """Wait for the other nodes; whether all of them start the program again.

        Args:
            is_stopping: Whether this process has been asked to end.

        Raises:
            OSError, ValueError, TypeError, KeyError: If the votes cannot be read.
        """
        began = time.monotonic()
        while not is_stopping():
            votes = self.votes()
            verdicts = {vote.verdict for vote in votes.values()}
            if Verdict.FINAL in verdicts:
                return False
            if len(votes) == self._num_nodes:
                return Verdict.CAUSE in verdicts
            limit = SECONDS_FOR_ALL if Verdict.CAUSE in verdicts else SECONDS_FOR_CAUSE
            if time.monotonic() - began > limit:
                return False
            time.sleep(POLL_SECONDS)
        return False
