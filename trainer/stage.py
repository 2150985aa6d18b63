"""Bring a data set from S3 to the shared file system: `python -m trainer.stage --url s3://bucket/key.tar`.

The archive is unpacked while it arrives, into a folder beside the target, is checked there, and takes the target's
place in one rename: whoever looks sees the old data set, the new one or none, never a part. A marker says what is
there, so that the next run with the same archive has nothing to do.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trainer import archive, arguments, program, s3, shards
from trainer.environment import Environment
from trainer.errors import ConfigInvalid, DatasetInvalid, DatasetNotFound, DestinationNotEmpty, StorageFailed
from trainer.files import sync_folder, written_whole
from trainer.source import Source, open_source

MARKER = "_READY"


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """What to bring, and where to."""

    url: str
    """Archive to unpack, s3://bucket/key: tar, plain or compressed."""
    destination: Path | None = None
    """Folder that shall hold the data set; else TRAINFLOW_DATA_DIR."""
    min_shards: int = 1
    """Fewest shards that the archive has to hold."""
    no_sign_request: bool = False
    """Send no credentials: for public buckets such as the one of the WikiCorpus archive."""

    def __post_init__(self) -> None:
        if self.min_shards < 1:
            raise ConfigInvalid(f"--min_shards is {self.min_shards}; it has to be at least 1.")


@dataclass(frozen=True, kw_only=True)
class Marker:
    """What the marker file says of the data set beside it."""

    url: str
    etag: str
    """Of the archive, as S3 gives it: another archive has another."""
    files: int
    bytes: int
    num_shards: int
    num_samples: int


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any]:
    """Stage the data set unless it is there already."""
    program.raise_on_sigterm()
    began = time.monotonic()
    config = arguments.parse(StageConfig, argv, program="trainer.stage")
    destination = config.destination or environment.data_dir
    if destination is None:
        raise ConfigInvalid("--destination is missing; give it, or set TRAINFLOW_DATA_DIR.")
    location = s3.parse(config.url, option="url", key_required=True)
    with _alone(destination), open_source(location, unsigned=config.no_sign_request) as source:
        there = read_marker(destination)
        skipped = there is not None and there.etag == source.etag and _is_complete(destination, there)
        marker = there if skipped and there is not None else stage(source, destination, config)
    _require_shards(marker, config)
    said = {key: value for key, value in asdict(marker).items() if key != "url"}
    return {**said, "skipped": skipped, "seconds": round(time.monotonic() - began, 2)}


def stage(source: Source, destination: Path, config: StageConfig) -> Marker:
    """Unpack, check, and put the data set into its place.

    Raises:
        DatasetInvalid: If the archive or one of its shards is not fit to be trained on.
        DestinationNotEmpty: If the folder holds files that are not a staged data set.
        StorageFailed: If the file system refuses.
    """
    _require_ours(destination)
    with _folder_beside(destination) as folder:
        unpacked = archive.unpack(source, folder, name=source.location.url)
        source.require_all_read()
        marker = _checked(folder, source, unpacked)
        _require_shards(marker, config)
        with written_whole(folder / MARKER) as file:
            file.write(json.dumps(asdict(marker), indent=2).encode() + b"\n")
        _put_into_place(folder, destination)
    return marker


def read_marker(destination: Path) -> Marker | None:
    """The marker of a staged data set; None if there is none that can be read."""
    with suppress(OSError, ValueError, TypeError):
        return Marker(**json.loads((destination / MARKER).read_text()))
    return None


def _checked(folder: Path, source: Source, unpacked: archive.Unpacked) -> Marker:
    try:
        dataset = shards.open_dataset(folder)
    except DatasetNotFound as error:
        raise DatasetInvalid(
            f"The archive {source.location.url} holds no file named {shards.PATTERN}; pack the shards into it."
        ) from error
    return Marker(
        url=source.location.url,
        etag=source.etag,
        files=unpacked.files,
        bytes=unpacked.bytes,
        num_shards=len(dataset.shards),
        num_samples=dataset.num_samples,
    )


def _require_shards(marker: Marker, config: StageConfig) -> None:
    if marker.num_shards < config.min_shards:
        raise DatasetInvalid(
            f"The archive {marker.url} holds {marker.num_shards} shards and --min_shards is {config.min_shards}; "
            "split the samples into more shards, or ask for fewer."
        )


def _is_complete(destination: Path, marker: Marker) -> bool:
    """Whether the shards that the marker vouches for are still there."""
    return sum(1 for _ in destination.rglob(shards.PATTERN)) == marker.num_shards


def _require_ours(destination: Path) -> None:
    """Never replace files that somebody else put there."""
    if destination.is_dir() and not (destination / MARKER).exists() and any(destination.iterdir()):
        raise DestinationNotEmpty(
            f"The folder {destination} holds files and no {MARKER} marker, so nothing is replaced; "
            "empty it, or give another --destination."
        )


def _put_into_place(folder: Path, destination: Path) -> None:
    """Rename over the old data set: a folder cannot be replaced in one step unless it is empty."""
    old = folder.with_name(f"{folder.name}.old")
    if destination.exists():
        destination.rename(old)
    folder.rename(destination)
    sync_folder(destination.parent)
    shutil.rmtree(old, ignore_errors=True)


@contextmanager
def _folder_beside(destination: Path) -> Iterator[Path]:
    """An empty folder on the same file system, gone at the end unless it was renamed."""
    for left_behind in destination.parent.glob(f".{destination.name}.staging-*"):
        shutil.rmtree(left_behind, ignore_errors=True)  # of a stager that was killed: this one is alone here
    folder = Path(tempfile.mkdtemp(prefix=f".{destination.name}.staging-", dir=destination.parent))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _alone(destination: Path) -> Iterator[None]:
    """Let only one stager work on a destination; the next one finds the data set there."""
    try:
        destination.parent.mkdir(parents=True, exist_ok=True)
        lock = (destination.parent / f".{destination.name}.lock").open("w")
    except OSError as error:
        raise StorageFailed(f"--destination {destination} cannot be written ({error}); give another folder.") from error
    with lock:
        with suppress(OSError):  # Lustre mounted without `flock`: then two runs at once are up to the user
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
