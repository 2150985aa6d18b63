"""An import of names from a linked bucket into the file system."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Import:
    """A data repository task of FSx."""

    task_id: str | None
    """None while FSx has another task to do first."""
    names: int
    """Imported so far, good and bad."""
    done: bool
