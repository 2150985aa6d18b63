"""The note of a run: the sets of packages that it requires. Later processes of the run read it and resolve nothing."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
import sysconfig
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from trainer.packages.image import Package
from trainer.packages.requirement_lines import Line
from trainer.packages.sets import KEY
from trainer.runtime.files import written_whole

MAX_BYTES = 4096


@dataclass(frozen=True, kw_only=True)
class Note:
    """Sets of packages by their keys; None for no such packages."""

    shared: str | None = None
    """Packages of indexes, for all runs."""
    own: str | None = None
    """Packages that were built for this run."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The sets in Python's order of search."""
        return tuple(filter(None, (self.own, self.shared)))


def note_name(lines: Sequence[Line], *, root: Path, image: Iterable[Package], replaced: Collection[str]) -> str:
    """Name of the note for requirements, the image's packages, Python and platform."""
    facts = {
        "lines": [(line.text.replace(str(root), "."), line.constrains) for line in lines],
        "image": sorted(f"{each.name}=={each.version}" for each in image),
        "python": f"{sys.implementation.cache_tag}-{sysconfig.get_platform()}",
        "replaced": sorted(replaced),
    }
    return f"{hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:24]}.json"


def read(file: Path) -> Note | None:
    """The note of a file; None if it is missing or damaged. The file may be another run's."""
    try:
        opened = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        with os.fdopen(opened, "rb") as content:
            if not stat.S_ISREG(os.fstat(opened).st_mode):
                return None
            document = json.loads(content.read(MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return None
    values = document if isinstance(document, Mapping) else {}
    keys = {name: values[name] for name in ("shared", "own") if name in values}
    if len(keys) < 2 or not all(each is None or _is_key(each) for each in keys.values()):
        return None
    return Note(**keys)


def _is_key(value: object) -> bool:
    return isinstance(value, str) and KEY.fullmatch(value) is not None


def write(file: Path, note: Note) -> None:
    """Write a note, which appears as a whole.

    Raises:
        OSError: If the folder cannot be written.
    """
    with written_whole(file) as written:
        written.write(json.dumps(asdict(note)).encode())
