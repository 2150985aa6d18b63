"""Formats in which public programs print their steps, with the steps and losses that a reader has to find."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainflow.observed.step import Step

ASSETS = Path(__file__).parents[2] / "assets/progress"
_ESCAPES = {"\\t": "\t", "\\r": "\r", "\\x1b": "\x1b"}
_ANY, _NONE = "*", "-"


@dataclass(frozen=True)
class PublicFormat:
    """Lines of a program.

    A loss is a number, `*` if several numbers of the line could be meant, or `-` if the line has none.
    """

    name: str
    steps: list[int]
    losses: list[str]
    source: str
    lines: list[str]

    def differences(self, found: Sequence[Step]) -> list[str]:
        """What was read otherwise than it was printed."""
        if [step.step for step in found] != self.steps:
            return [f"steps {[step.step for step in found]} instead of {self.steps}"]
        pairs = zip(self.losses, found, strict=True)
        return [f"{step.loss} instead of {printed}" for printed, step in pairs if not _is_loss(printed, step.loss)]


def public_formats(name: str) -> Iterator[PublicFormat]:
    """The formats of a file: blocks that begin with `## name | steps | losses | source`."""
    text = (ASSETS / name).read_text(encoding="utf-8")
    for escape, character in _ESCAPES.items():
        text = text.replace(escape, character)
    for block in text.split("\n## ")[1:]:
        heading, *lines = block.rstrip("\n").split("\n")
        title, steps, losses, source = heading.split(" | ")
        yield PublicFormat(title, [int(step) for step in steps.split()], losses.split(), source, lines)


def _is_loss(printed: str, read: float | None) -> bool:
    if printed in (_ANY, _NONE):
        return True
    return read is not None and abs(read - float(printed)) < 1e-9
