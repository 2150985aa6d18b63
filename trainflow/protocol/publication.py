"""Result of publishing a run's files, as far as it names files: those that are not in S3.

    {"num_files": 2, "num_bytes": 7, "files": [["latin\\xe9.txt", 7, "its name is not UTF-8"], …]}

`trainer.publish` leaves such objects in its result, and the record's warnings are made of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trainflow.protocol.lost_files import printable, whole_number

SKIPPED = "skipped"
"""Field of the result about files that S3 cannot hold, or that could not be read."""

BEYOND_LIMIT = "beyond_limit"
"""Field of the result about files of the working folder that exceed the limit of what is published of it."""

KEPT_GIB = 50
"""Most GiB of a working folder that are published by default: results of most programs, and no large data set that was
downloaded."""

MAX_NAMED = 4
"""Most files that are named: the result has to fit a termination message."""

OWN_NAMES = ("run.json", "report.html", "steps.json")
"""Objects of a run that the workflow writes; a program's file of this name would replace them."""


@dataclass(frozen=True, kw_only=True)
class UnpublishedFile:
    """A file that is not in S3."""

    name: str
    """Path below the run's folder. Characters that cannot be printed are escaped."""
    num_bytes: int
    reason: str
    """The reason as a clause."""


@dataclass(frozen=True, kw_only=True)
class Unpublished:
    """Files of a run that are not in S3."""

    num_files: int
    num_bytes: int
    """Size of all these files, as far as it is known."""
    files: tuple[UnpublishedFile, ...] = ()
    """Some of them."""


def unpublished_document(found: Unpublished) -> dict[str, Any]:
    """The files as JSON."""
    named = [[file.name, file.num_bytes, file.reason] for file in found.files[:MAX_NAMED]]
    return {"num_files": found.num_files, "num_bytes": found.num_bytes, "files": named}


def parse_unpublished(result: Mapping[str, Any], field: str) -> Unpublished | None:
    """The files of a publisher's result; None without any, and for other documents."""
    try:
        said = result[field]
        files = tuple(
            UnpublishedFile(name=printable(name), num_bytes=whole_number(num_bytes), reason=printable(reason))
            for name, num_bytes, reason in said["files"][:MAX_NAMED]
        )
        num_files, num_bytes = whole_number(said["num_files"]), whole_number(said["num_bytes"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return Unpublished(num_files=num_files, num_bytes=num_bytes, files=files) if num_files else None
