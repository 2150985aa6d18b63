"""The line about files that a program wrote to its working folder, which are deleted with the pod:

    {"trainflow_lost_files": {"num_files": 2, "num_bytes": 1258291, "largest": [["model.pt", 1258288, 1], …]}}

`trainer.lost_files` prints it once, after the program has ended, on the node whose log the workflow reads. The files of
the other nodes are in the same line; each file has its name, its size in bytes, and the number of nodes that wrote it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

LOST_FILES = "trainflow_lost_files"
"""Key of the JSON object that the line is."""

MAX_NAMED = 10
"""Most files that are named, the largest."""

MAX_NAME_LENGTH = 100
"""Most characters of a name; of a longer path the end is kept."""

LARGEST_NUMBER = 10**18
"""Largest number of files, and of bytes, that is believed."""

_BEGIN = f'{{"{LOST_FILES}":'


@dataclass(frozen=True, kw_only=True)
class LostFile:
    """A file that was in the working folder of a program when the program ended."""

    name: str
    """Path below the working folder. Characters that cannot be printed are escaped."""
    num_bytes: int
    """Its size; of a file that several nodes wrote, the largest."""
    num_nodes: int = 1
    """Nodes that wrote a file of this name."""


@dataclass(frozen=True, kw_only=True)
class LostFiles:
    """The files that a program wrote to its working folder."""

    num_files: int
    """Number of files; a file that several nodes wrote counts once."""
    num_bytes: int
    """Size of all these files."""
    largest: tuple[LostFile, ...] = ()
    """The largest of them."""
    is_partial: bool = False
    """Whether there may be more: the folder was not searched to its end, or a node did not report in time."""


def lost_files_line(found: LostFiles, *, most_named: int = MAX_NAMED) -> str:
    """The line about lost files.

    Args:
        found: The files.
        most_named: Most files that are named.
    """
    said = {
        "num_files": found.num_files,
        "num_bytes": found.num_bytes,
        "largest": [[file.name, file.num_bytes, file.num_nodes] for file in found.largest[:most_named]],
        **({"is_partial": True} if found.is_partial else {}),
    }
    return json.dumps({LOST_FILES: said})


def parse_lost_files_line(line: str, *, most_named: int = MAX_NAMED) -> LostFiles | None:
    """The lost files in a log line, or None if it is another line."""
    begin = line.find(_BEGIN)
    if begin < 0:
        return None
    try:
        said = json.loads(line[begin:])[LOST_FILES]
        largest = tuple(
            LostFile(name=printable(name), num_bytes=whole_number(num_bytes), num_nodes=whole_number(num_nodes))
            for name, num_bytes, num_nodes in said["largest"][:most_named]
        )
        num_files, num_bytes = whole_number(said["num_files"]), whole_number(said["num_bytes"])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    if not num_files:
        return None
    return LostFiles(
        num_files=num_files, num_bytes=num_bytes, largest=largest, is_partial=said.get("is_partial") is True
    )


def merged(reports: Iterable[LostFiles]) -> LostFiles | None:
    """The files of several nodes, each name once; None without any file.

    Names are compared as far as the reports have them. Of the files that a report only counts, those of the node with
    the most count: nodes of one gang mostly write the same files.
    """
    found = list(reports)
    by_name: dict[str, LostFile] = {}
    for file in (file for report in found for file in report.largest):
        known = by_name.get(file.name, LostFile(name=file.name, num_bytes=0, num_nodes=0))
        by_name[file.name] = LostFile(
            name=file.name,
            num_bytes=max(known.num_bytes, file.num_bytes),
            num_nodes=known.num_nodes + file.num_nodes,
        )
    counted = [(report.num_files - len(report.largest), report.num_bytes - _bytes(report.largest)) for report in found]
    more_files, more_bytes = max(counted, default=(0, 0))
    largest = tuple(sorted(by_name.values(), key=lambda file: (-file.num_bytes, file.name)))
    if not largest and not more_files:
        return None
    return LostFiles(
        num_files=len(largest) + max(more_files, 0),
        num_bytes=_bytes(largest) + max(more_bytes, 0),
        largest=largest,
        is_partial=any(report.is_partial for report in found),
    )


def printable(name: object) -> str:
    """A name as printable text on one line; only the end of a long name.

    Raises:
        TypeError: If it is not text.
    """
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is no text")
    shown = "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in name)
    return shown if len(shown) <= MAX_NAME_LENGTH else f"…{shown[1 - MAX_NAME_LENGTH :]}"


def _bytes(files: Iterable[LostFile]) -> int:
    return sum(file.num_bytes for file in files)


def whole_number(value: object) -> int:
    """A number of files or bytes.

    Raises:
        TypeError: If it is something else.
    """
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= LARGEST_NUMBER:
        raise TypeError(f"{value!r} is not a number of files or bytes")
    return value
