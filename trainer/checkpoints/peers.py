"""Comparison of a checkpoint with the ones before it, for programs and formats that nothing else is known of.

Only the newest checkpoint of a program can be cut off: the program went on after the others. So what all of these have,
the newest one should have, too. Numbers in names differ with the step and the number of processes and are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

MAX_PEERS = 3
"""Checkpoints before the newest one that it is compared with."""

TEXTS = (".json", ".yaml", ".yml", ".txt", ".md", ".py", ".toml", ".csv", ".log", ".jinja")
"""Endings of files that lie beside the weights: a program may write them once, or now and then."""

_NUMBER = re.compile(r"[0-9a-f]{8,}|\d+")
"""A number in a name, or a hash."""


def difference(newest: Mapping[str, int | None], others: Sequence[Mapping[str, int]]) -> str | None:
    """A file that the newest checkpoint lacks in comparison with the ones before, as a clause; None if it lacks none.

    Args:
        newest: Sizes of its files by their names below it; None for a file that is known to have its end.
        others: The same of the ones before it, the newest first.
    """
    if not others:
        return None
    own, before = _kinds(newest), [_kinds(each) for each in others]
    missing = set.intersection(*map(set, before)) - set(own)
    if len(before) == 1:  # it may have names, and texts, by chance; those of two are not the same
        missing = {kind for kind in missing if not kind.endswith(TEXTS)} if set(own) < set(before[0]) else set()
    if missing:
        return f"it has no {min(missing)}, which the checkpoints before it have"
    return next(_shorter(own, before), None) if len(before) > 1 else None


def _kinds(files: Mapping[str, int | None]) -> dict[str, list[int | None]]:
    """The sizes of the files of each kind."""
    found: dict[str, list[int | None]] = {}
    for name, size in files.items():
        found.setdefault(_NUMBER.sub("#", name), []).append(size)
    return found


def _shorter(own: Mapping[str, list[int | None]], before: Sequence[Mapping[str, list[int | None]]]) -> Iterator[str]:
    """Files of an unknown format that had one size so far, and are shorter now."""
    for kind, sizes in own.items():
        if kind.endswith(TEXTS):
            continue
        known = {size for each in before for size in each.get(kind, []) if size is not None}
        if len(known) == 1 and any(size is not None and size < max(known) for size in sizes):
            yield f"{kind or 'it'} is shorter than in the checkpoints before it"
