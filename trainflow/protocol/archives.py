"""Tar archives that can be staged, and how their names end."""

from __future__ import annotations

from collections.abc import Mapping

PLAIN = (".tar",)
"""Endings of archives without compression."""

COMPRESSED: Mapping[str, tuple[str, ...]] = {
    "gzip": (".tar.gz", ".tgz"),
    "bzip2": (".tar.bz2",),
    "xz": (".tar.xz",),
    "zstd": (".tar.zst",),
}
"""Endings by compression."""

ENDINGS = (*PLAIN, *(ending for endings in COMPRESSED.values() for ending in endings))
"""Endings of archives' names."""


def is_archive(name: str) -> bool:
    """Whether a name, a key or a path is an archive's."""
    return name.endswith(ENDINGS)


def is_compressed(name: str) -> bool:
    """Whether the name of an archive says that it is compressed."""
    return not name.endswith(PLAIN)


def without_ending(name: str) -> str:
    """An archive's name without its ending; another name as it is."""
    return next((name.removesuffix(ending) for ending in ENDINGS if name.endswith(ending)), name)
