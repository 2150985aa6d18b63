"""Protocol of a system that holds objects of runs, so that the sweep can find and delete those of ended runs."""

from __future__ import annotations

from typing import Protocol

from trainflow.workflow.leftovers import Held


class RunObjects(Protocol):
    """A cluster, with the things of all runs of the deployment."""

    def held(self) -> list[Held]:
        """Everything that runs hold there."""

    def delete(self, held: Held) -> None:
        """Delete a listed thing. Safe to repeat."""
