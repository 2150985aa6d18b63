"""The drawing of each run's state machine: of its execution's own definition, if the place keeps it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from trainflow.errors import TrainflowError
from trainflow.page.workflow import Layout, layout
from trainflow.state_machines import InvalidDefinition, definition

RETRY_SECONDS = 30.0
"""Seconds until a place that did not return a definition is asked again."""


@runtime_checkable
class KeepsDefinitions(Protocol):
    """A place whose runs may have been started with another definition: `trainflow.client.runs.DeployedRuns`."""

    def definition(self, run_id: str) -> Mapping[str, Any]:
        """The definition that the run's execution has, in Amazon States Language."""


@dataclass(frozen=True)
class Drawing:
    """The state machine of a run."""

    layout: Layout | None
    """None without a definition."""
    note: str = ""
    """Source of the drawing, if that is not the run's own definition; a sentence."""


class Drawings:
    """Drawings by runs. All methods may be called from several threads."""

    def __init__(self, place: object | None, *, workflow: Mapping[str, Any] | None = None) -> None:
        """Asks nothing yet.

        Args:
            place: Where the runs are; one that keeps no definitions has this installation's.
            workflow: The definition of this installation. Default: the repository's.
        """
        self._place, self._workflow = place, workflow
        self._installed: Layout | None = None
        self._found: dict[str, tuple[Drawing, float]] = {}
        self._lock = threading.Lock()

    def installed(self) -> Layout | None:
        """The drawing of this installation's definition; None in an installed client, which does not include it."""
        if self._installed is None:
            try:
                self._installed = layout(self._workflow or definition("training"))
            except (OSError, InvalidDefinition):
                return None
        return self._installed

    def of_run(self, run_id: str) -> Drawing:
        """The drawing for a run."""
        if not isinstance(self._place, KeepsDefinitions):
            return Drawing(self.installed())
        with self._lock:
            known, until = self._found.get(run_id, (None, 0.0))
            if known is None or time.monotonic() >= until:
                known, until = self._asked(self._place, run_id)
                self._found[run_id] = known, until
        return known

    def _asked(self, place: KeepsDefinitions, run_id: str) -> tuple[Drawing, float]:
        """The place's present answer, and the time until it expires."""
        try:
            return Drawing(layout(place.definition(run_id))), float("inf")
        except TrainflowError as trouble:
            return self._fallback(str(trouble)), time.monotonic() + RETRY_SECONDS
        except (ValueError, KeyError, TypeError, AttributeError):
            # Another version's text may have what this one does not know.
            return self._fallback("The definition of this run cannot be drawn by this version."), float("inf")

    def _fallback(self, reason: str) -> Drawing:
        drawn = self.installed()
        return Drawing(drawn, f"The drawing is of this installation's definition. {reason}" if drawn else reason)
