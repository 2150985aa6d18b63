"""The edge between the command and a terminal: text of programs loses what would command the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.console import Console as RichConsole
from rich.segment import Segment

from trainflow.protocol.plain_text import plain_text

if TYPE_CHECKING:
    from rich.console import ConsoleOptions, RenderableType


class Console(RichConsole):
    """rich's console, which prints its own control sequences only."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """See `rich.console.Console.render`."""
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(plain_text(segment.text), segment.style)
