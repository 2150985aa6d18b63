"""Checkpoints of any program, found by a pattern of their paths, and whether each is complete.

Nothing here needs torch. A file that is being written has no valid end yet in the formats of torch (a zip archive,
whose directory is its end) and safetensors (a header with the offsets of all that follows). A folder of
`torch.distributed.checkpoint` gets its `.metadata` last.
"""

from __future__ import annotations

import json
import re
import struct
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from trainflow.protocol.placeholders import STEP

TORCH = (".pt", ".pth", ".ckpt", ".bin")
"""Endings of files that `torch.save` writes."""

ZIP_BEGINS = b"PK"
"""First bytes of torch's format since version 1.6; older files are pickles, whose end cannot be told."""

MAX_HEADER = 100_000_000
"""Largest header of a safetensors file, in bytes, as the format's own reader has it."""


@dataclass(frozen=True)
class Found:
    """A path that the pattern matches."""

    path: Path
    step: int | None
    """Number in the path; None for a pattern without one."""

    @property
    def number(self) -> int:
        """A number that is higher for a newer checkpoint: the step, or the second of the last change."""
        return int(_changed_at(self.path)) if self.step is None else self.step


def find(pattern: str, folder: Path) -> list[Found]:
    """The checkpoints below a folder, the newest first.

    Args:
        pattern: Path below the folder; `{step}` is a number, `*` any part of a name.
        folder: The run's folder.
    """
    words = {STEP: r"(?P<step>\d+)", "*": "[^/]*"}
    expression = re.compile("".join(words.get(part) or re.escape(part) for part in re.split(r"(\{step\}|\*)", pattern)))
    found = []
    for path in folder.glob(pattern.replace(STEP, "*")):
        match = expression.fullmatch(path.relative_to(folder).as_posix())
        if match is not None:
            found.append(Found(path, int(match["step"]) if STEP in pattern else None))
    return sorted(found, key=lambda each: (each.step or 0, _changed_at(each.path)), reverse=True)


def is_complete(path: Path, *, marker: str | None, settled_seconds: float, now: float) -> bool:
    """Whether a checkpoint has been written to its end.

    Args:
        path: A file or a folder.
        marker: Name of a file that only a complete folder has; None to check the formats.
        settled_seconds: Time without a change after which an unknown format is complete.
        now: Present time of the file system's clock, in seconds since 1970.
    """
    if marker is not None:
        return (path / marker).is_file()
    try:
        files = [path] if path.is_file() else [file for file in path.rglob("*") if file.is_file()]
        verdicts = [verdict for verdict in map(_has_its_end, files) if verdict is not None]
        if path.is_dir():
            verdicts += _distributed(path)
        if verdicts:
            return all(verdicts)
        return bool(files) and now - max(map(_changed_at, [path, *files])) >= settled_seconds
    except OSError:  # it is being removed or replaced
        return False


def _changed_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _distributed(folder: Path) -> Iterator[bool]:
    """One verdict for a folder of torch.distributed.checkpoint; none for another one."""
    if any(folder.glob("*.distcp")) or (folder / ".metadata").exists():
        yield (folder / ".metadata").is_file() and (folder / ".metadata").stat().st_size > 0


def _has_its_end(file: Path) -> bool | None:
    """Whether the file is whole; None for a format whose end cannot be told."""
    if file.suffix == ".safetensors":
        return _safetensors_is_whole(file)
    if file.suffix in TORCH:
        with file.open("rb") as content:
            begins = content.read(len(ZIP_BEGINS))
        return zipfile.is_zipfile(file) if begins == ZIP_BEGINS else None if begins else False
    if file.suffix == ".json":
        return _is_json(file)
    return None


def _safetensors_is_whole(file: Path) -> bool:
    with file.open("rb") as content:
        first = content.read(8)
        if len(first) < 8:
            return False
        (length,) = struct.unpack("<Q", first)
        if length > MAX_HEADER:
            return False
        try:
            header = json.loads(content.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
        except (ValueError, TypeError, LookupError, AttributeError):
            return False
    return all(isinstance(end, int) for end in ends) and file.stat().st_size == 8 + length + max(ends, default=0)


def _is_json(file: Path) -> bool:
    try:
        json.loads(file.read_bytes())
    except ValueError:
        return False
    return True
