"""Knowledge of the reader of progress about a log, which a run keeps between two polls."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass
class Sighting:
    """A line that may be a step's; it counts once a second one has a higher number."""

    logged_at: datetime
    step: int
    figures: dict[str, str]
    length: int | None = None
    """Last step of the training, if the line says it."""


@dataclass
class EpochCounter:
    """State of the numbering of a program that counts its batches anew in each epoch."""

    first_epoch: int | None = None
    epoch: int | None = None
    batch: int | None = None
    stride: int = 0
    """Batches between the two newest lines."""
    batches: int | None = None
    """Batches of an epoch, if the program prints it or one epoch was completed."""
    is_global: bool = False
    """The number of the batch goes on over the end of an epoch."""
    offset: int = 0
    """Batches of the epochs that ended without a number of their own."""


@dataclass
class LearnedProgress:
    """State of the general reader behind the last line that was read."""

    shape: str | None = None
    """Shape of the lines that are read as steps."""
    preference: int = 9
    counter: EpochCounter = field(default_factory=EpochCounter)
    epoch: int | None = None
    """Epoch of a heading, which the lines below it may lack."""
    columns: tuple[str, ...] = ()
    """Heading of a table."""
    heading: str = ""
    """Line above, which may be the first one of a heading of two lines."""
    record: list[tuple[str, str, str | None]] = field(default_factory=list)
    """Names, numbers and totals of the lines of a record that has not ended."""
    gap: int = 0
    """Lines since the newest one of the record."""
    waiting: dict[str, list[Sighting]] = field(default_factory=dict)
    """Lines of other shapes since the newest step, by shape."""
    counters: dict[str, EpochCounter] = field(default_factory=dict)
    """Numbering of those shapes."""
