"""The access of runs to the buckets of a twin's home, in place of `storage.grants` of a deployment.

The deployment's own buckets get what the templates say. Another one is granted as `storage.grants` grants it by
default, for reading, and for writing as well if `writable-buckets.txt` in the home names it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from local.home_lists import listed_names

FILE_NAME = "writable-buckets.txt"


@dataclass(frozen=True, kw_only=True)
class GrantedBuckets:
    """Names of the buckets outside of the deployment that runs may use."""

    readable: tuple[str, ...] = ()
    """For reading only."""
    writable: tuple[str, ...] = ()
    """For reading and for adding objects."""


def granted_buckets(home: Path, buckets: Iterable[str], *, own: Collection[str]) -> GrantedBuckets:
    """The buckets that runs may use.

    Args:
        home: The twin's home.
        buckets: Names of the buckets in it.
        own: Names of the deployment's buckets.

    Raises:
        ValueError: If the file cannot be read, or names a bucket that the home has not, or one of the deployment. The
            message is one sentence for the user.
    """
    further = [name for name in buckets if name not in own]
    file = home / FILE_NAME
    writable = listed_names(file, kind="bucket") or ()
    for name in writable:
        if name in own:
            raise ValueError(f"{file}: {name} is the deployment's, whose templates say what runs write there.")
        if name not in further:
            raise ValueError(f"{file}: there is no bucket {name}; make the folder {home / 's3' / name}.")
    return GrantedBuckets(
        readable=tuple(name for name in further if name not in writable),
        writable=tuple(name for name in further if name in writable),
    )
