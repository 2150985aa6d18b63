"""Bring a data set to the shared file system: `python -m trainer.stage --url s3://bucket/key.tar`.

An archive is unpacked while it arrives, or the objects below a prefix become files; both in a folder beside the target.
The files are checked there and replace the target in one rename, so a reader never sees a part of a data set. A marker
beside the target describes its content, so the next run with the same source stages nothing. An attempt that was killed
leaves the files that it completed, and the next one brings the rest.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import Any

from trainer.runtime import arguments, program, s3
from trainer.runtime.environment import Environment
from trainer.runtime.errors import ConfigInvalid, DatasetInvalid, DatasetNotFound, StorageFailed
from trainer.staging import (
    compression,
    linked,
    manifest,
    marker,
    prefix,
    staging_folder,
    stored_checksum,
    unpacking,
)
from trainer.staging.completed_files import CompletedFiles
from trainer.staging.marker import Marker
from trainer.staging.progress import Progress
from trainer.staging.source import RemoteFile, Source, open_source, resolved
from trainer.staging.stored_checksum import StoredChecksum, Verification
from trainer.staging.stream import RemoteStream, too_large
from trainer.staging.transfer import BYTES_IN_FLIGHT, FEW_BYTES_IN_FLIGHT, Range, Transfer
from trainer.staging.writer import Writer
from trainflow.protocol import archives, variables
from trainflow.protocol.s3_urls import parse_s3_url

Manifest = Mapping[str, str]

SHARDS = "*_training_*.hdf5"
"""Names of the files that are shards, as `trainer.data.shards` has them, which takes long to import."""

ALWAYS_UNPACKED_BYTES = 64 * 2**20
"""Unpacked size that an archive may have however small it is: tar pads with zeros, which compress well."""

SHA256, MANIFEST, S3 = "SHA-256 of the spec", "manifest", "checksums that S3 keeps"
"""Kinds of checksums that the bytes were compared with."""


@dataclass(frozen=True, kw_only=True)
class StageConfig:
    """Source and destination of a data set."""

    url: str
    """Data set: s3://bucket/key or https://host/path of a tar archive, plain or compressed, or s3://bucket/prefix/ for
    every object below it."""
    destination: Path | None = None
    """Folder for the data set; TRAINFLOW_DATA_DIR if it is not given."""
    min_shards: int = 1
    """Fewest shards that the data set must have; 0 for a data set of other files, which are not opened."""
    no_sign_request: bool = False
    """Send no credentials: for public buckets such as the one of the WikiCorpus archive."""
    region: str | None = None
    """Region of the bucket; S3 is asked if it is not given."""
    sha256: str | None = None
    """SHA-256 of the archive, 64 hexadecimal digits; required for an archive from https://."""
    manifest_url: str | None = None
    """s3://bucket/key of a file as `sha256sum` writes it, with the checksum of every file of the data set."""
    max_expansion: float = 100.0
    """Limit for the size of an unpacked archive, as a multiple of its compressed size. Archives of up to 64 MiB without
    compression are always accepted."""
    linked_folder: Path | None = None
    """Folder of an FSx for Lustre file system that is linked with the prefix: its content is restored, nothing is
    downloaded."""

    def __post_init__(self) -> None:
        if self.max_expansion < 1:
            raise ConfigInvalid(f"--max_expansion is {self.max_expansion:g}; it has to be at least 1.")
        if self.min_shards < 0:
            raise ConfigInvalid(f"--min_shards is {self.min_shards}; it has to be at least 0.")
        if self.sha256 is not None and not re.fullmatch("[0-9a-f]{64}", self.sha256):
            raise ConfigInvalid(f"--sha256 is {self.sha256!r}; it has to be 64 hexadecimal digits in lower case.")
        if self.sha256 is not None and self.url.endswith("/"):
            raise ConfigInvalid("--sha256 is of one archive; for a prefix give --manifest_url instead.")
        in_s3 = parse_s3_url(self.url)
        if self.linked_folder is not None and (in_s3 is None or not in_s3.key or not in_s3.is_prefix):
            raise ConfigInvalid(f"--linked_folder goes with a prefix, s3://bucket/prefix/, and --url is {self.url!r}.")


def main(argv: Sequence[str], environment: Environment) -> Mapping[str, Any]:
    """Stage the data set unless it is there already."""
    program.raise_on_sigterm()
    began = time.monotonic()
    config = arguments.parse(StageConfig, argv, program="trainer.stage")
    destination = config.linked_folder or config.destination or environment.data_dir
    if destination is None:
        raise ConfigInvalid(f"--destination is missing; give it, or set {variables.DATA_DIR}.")
    if config.linked_folder is not None:
        staged, skipped = _unless_there(_open(config), destination, config, link)
    else:
        with staging_folder.alone(destination):
            staging_folder.finish(destination)
            staged, skipped = _unless_there(_open(config), destination, config, stage)
    said = {key: value for key, value in asdict(staged).items() if key not in ("url", "shard_sha256")}
    return {**said, "skipped": skipped, "seconds": round(time.monotonic() - began, 2)}


def stage(source: Source, destination: Path, config: StageConfig) -> Marker:
    """Download the data set, check it, and move it to its destination.

    Raises:
        DatasetInvalid: If the source or one of its shards is not fit to be trained on.
        DatasetNotFound: If the source was replaced meanwhile.
        DestinationNotEmpty: If the folder holds another data set, or other files.
        StorageFailed: If the file system or the network fails.
    """
    checksums = _manifest(config)
    with staging_folder.workplace(destination, url=source.url) as work:
        with CompletedFiles(work.completed_files, work.data, source=_identity(source, checksums)) as completed:
            progress = Progress(source.num_bytes, files=lambda: completed.num_files)
            verified = _bring(source, work.data, completed, progress, config, checksums)
        staged = _checked(work.data, source, config, checksums)
        shards = {path: sha256 for path, sha256 in sorted(completed.digests.items()) if _is_shard(path)}
        staged = replace(staged, verified=verified, shard_sha256=shards)
        staging_folder.put_into_place(work, destination, staged)
    progress.end()
    return staged


def link(source: Source, folder: Path, config: StageConfig) -> Marker:
    """Restore the content of a folder that is linked with the source.

    Raises:
        DatasetInvalid: If a file differs from its object, or cannot be trained on.
        DatasetNotFound: If a file has not appeared.
        StorageFailed: If the file system fails.
    """
    checksums = _manifest(config)
    restored: list[Path] = []
    progress = Progress(source.num_bytes, files=lambda: len(restored))
    paths = linked.linked_paths(source, folder)

    def there(path: Path) -> None:
        restored.append(path)
        progress.advance(path.stat().st_size)

    linked.restore(paths, restored=there)
    linked.require_sizes(paths, source.files)
    if checksums is not None:
        _require_contents(folder, [file.name for file in source.files], checksums, read=lambda _bytes: None)
    staged = _checked(folder, source, config, checksums)
    _mark(staged, folder)
    progress.end()
    return staged


def check(there: Marker, source: Source, folder: Path, config: StageConfig) -> Marker:
    """Check a data set that is there already, as far as this run asks for checks that no earlier run made.

    Files are only read, because a training may be using them.

    Raises:
        DatasetInvalid: If a check fails.
        DatasetNotFound: If the archive or the manifest can no longer be read.
        StorageFailed: If the file system or the network fails.
    """
    checksums = _manifest(config)
    checked = there
    if config.sha256 is not None:
        checked = replace(checked, sha256=there.sha256 or _digest_of_all(source, config, files=there.files))
        _require_checksum(source, checked.sha256, config.sha256)
    if checksums is not None and there.manifest != manifest.digest(checksums):
        names = _names(folder) if source.is_archive else [file.name for file in source.files]
        progress = Progress(there.bytes, files=lambda: there.files)
        _require_contents(folder, names, checksums, read=progress.advance)
        manifest.require_all(checksums, set(names), url=source.url)
        checked = replace(checked, manifest=manifest.digest(checksums))
        progress.end()
    checked = _with_shards(checked, folder, config)
    if checked != there or marker.is_inside(folder):
        _mark(checked, folder)
    return checked


def _open(config: StageConfig) -> Source:
    return open_source(config.url, unsigned=config.no_sign_request, region=config.region, sha256=config.sha256)


def _unless_there(
    source: Source, destination: Path, config: StageConfig, bring: Callable[[Source, Path, StageConfig], Marker]
) -> tuple[Marker, bool]:
    """The data set's marker, and whether the data set was complete already."""
    there = marker.read(destination)
    if there is not None and there.etag == source.etag and marker.is_complete(destination, there):
        return check(there, source, destination, config), True
    return bring(source, destination, config), False


def _bring(
    source: Source,
    folder: Path,
    completed: CompletedFiles,
    progress: Progress,
    config: StageConfig,
    checksums: Manifest | None,
) -> str | None:
    """Bring the files, and return the kind of checksum that their bytes were compared with; None without checksums."""
    digest = hashlib.sha256() if config.sha256 else None

    def arrived(data: bytes) -> None:
        progress.advance(len(data))
        if digest is not None:
            digest.update(data)

    transfer = _transfer(source, config)
    with Writer(folder, completed=completed, checksums=checksums, digested=_is_shard) as writer:
        stored = _stored_checksums(source, config, checksums)
        if not source.is_archive:
            _require_room(folder, source.num_bytes - completed.num_bytes)
            progress.found(completed.num_bytes)
            by_s3 = prefix.download(source.files, transfer, writer, completed, arrived=arrived, stored=stored)
            return MANIFEST if checksums is not None else S3 if by_s3 else _warned(source)
        checksum, verification = stored(source.files[0]), None
        if checksum is not None:
            verification = Verification(checksum, known=completed.crcs)
        needless: Mapping[int, int] = completed.spans
        if checksum is not None:
            needless = {start: end for start, (end, _crc) in completed.crcs.items()}
        if digest is not None or (checksum is not None and not checksum.has_spans):
            needless = {}  # such a checksum of the archive needs all of its bytes
        progress.found(sum(end - start for start, end in needless.items()))
        with RemoteStream(
            transfer, source.files[0], without=needless, arrived=arrived, verification=verification
        ) as stream:
            start = b"" if completed.spans else stream.peek(compression.LONGEST_HEADER)
            most = max(ALWAYS_UNPACKED_BYTES, int(config.max_expansion * source.num_bytes))
            unpacked = _unpacked_bytes(source.files[0], start, transfer)
            if unpacked > most:
                raise too_large(most)
            _require_room(folder, unpacked - completed.num_bytes)
            unpacking.unpack(stream, writer, completed, name=source.url, most=most)
            if digest is not None or verification is not None:
                stream.drain()
            if digest is not None:
                _require_checksum(source, digest.hexdigest(), config.sha256)
                return SHA256
            if verification is not None and checksum is not None:
                verification.require(source.url)
                return f"{checksum.algorithm}, which S3 keeps"
            return MANIFEST if checksums is not None else compression.own_checksum(start) or _warned(source)


def _unpacked_bytes(archive: RemoteFile, start: bytes, transfer: Transfer) -> int:
    """Bytes that an archive has at least without its compression, as far as it is known before it is read."""
    end: list[bytes] = []
    if compression.tells_its_size_at_its_end(start):
        asked = Range(archive, max(0, archive.size - compression.END_BYTES), archive.size)
        end = [chunk for _asked, chunks in transfer.fetch([asked]) for chunk in chunks]
    return max(archive.size, compression.unpacked_bytes(start, b"".join(end)) or 0)


def _stored_checksums(
    source: Source, config: StageConfig, checksums: Manifest | None
) -> Callable[[RemoteFile], StoredChecksum | None]:
    """Checksums that S3 keeps of the objects. It does not ask S3 if the user's own checksums cover all bytes."""
    if config.sha256 is not None or checksums is not None or parse_s3_url(source.url) is None:
        return lambda _file: None
    client = s3.connect(unsigned=config.no_sign_request, region=config.region or source.region)

    def stored(file: RemoteFile) -> StoredChecksum | None:
        place = parse_s3_url(file.url)
        if place is None or file.etag is None:
            return None
        return stored_checksum.find(client, bucket=place.bucket, key=place.key, size=file.size, etag=file.etag)

    return stored


def _warned(source: Source) -> str | None:
    """Nothing, after a warning that nothing vouches for the bytes."""
    print(
        f"Warning: {source.url} is not verifiable: S3 keeps no checksum of it that can be compared, so damaged bytes "
        "would not be noticed; give dataset.sha256 (--sha256) or dataset.manifest_url (--manifest_url).",
        flush=True,
    )
    return None


def _is_shard(path: str) -> bool:
    return fnmatch(PurePosixPath(path).name, SHARDS)


def _transfer(source: Source, config: StageConfig) -> Transfer:
    compressed = source.is_archive and archives.is_compressed(source.files[0].name)
    return Transfer(
        encrypted=source.files[0].address.startswith("https:"),
        region=source.region,
        renew=resolved if parse_s3_url(config.url) is None else _same,
        bytes_in_flight=FEW_BYTES_IN_FLIGHT if compressed else BYTES_IN_FLIGHT,
    )


def _digest_of_all(source: Source, config: StageConfig, *, files: int) -> str:
    """SHA-256 of an archive that is unpacked already; the whole archive is read, and nothing is written."""
    digest = hashlib.sha256()
    progress = Progress(source.num_bytes, files=lambda: files)

    def arrived(data: bytes) -> None:
        progress.advance(len(data))
        digest.update(data)

    with RemoteStream(_transfer(source, config), source.files[0], without={}, arrived=arrived) as stream:
        stream.drain()
    progress.end()
    return digest.hexdigest()


def _require_contents(folder: Path, names: Iterable[str], checksums: Manifest, *, read: Callable[[int], None]) -> None:
    for name in names:
        try:
            with (folder / name).open("rb") as content:
                found, num_bytes = hashlib.file_digest(content, "sha256").hexdigest(), content.tell()
        except OSError as error:
            raise StorageFailed(
                f"{folder / name} cannot be read ({error}); check the file system and start again."
            ) from error
        manifest.require(checksums, name, found)
        read(num_bytes)


def _checked(folder: Path, source: Source, config: StageConfig, checksums: Manifest | None) -> Marker:
    if checksums is not None:
        manifest.require_all(checksums, _names(folder), url=source.url)
    files, num_bytes = marker.inventory(folder)
    staged = Marker(
        url=source.url,
        etag=source.etag,
        files=files,
        bytes=num_bytes,
        num_shards=None,
        num_samples=None,
        sha256=config.sha256,
        manifest=manifest.digest(checksums) if checksums is not None else None,
    )
    return _with_shards(staged, folder, config)


def _names(folder: Path) -> set[str]:
    return {os.path.relpath(entry.path, folder) for entry in marker.files_below(folder)}


def _mark(staged: Marker, folder: Path) -> None:
    try:
        marker.keep(staged, folder)
    except PermissionError:  # files that FSx imports may belong to root
        print(f"{folder.parent} may not be written to, so the next run checks every file again.", flush=True)


def _with_shards(staged: Marker, folder: Path, config: StageConfig) -> Marker:
    """Add the number of shards to the marker, if this run needs any."""
    if config.min_shards == 0:
        return staged
    if not staged.num_shards:
        num_shards, num_samples = _shards(folder, staged.url)
        staged = replace(staged, num_shards=num_shards, num_samples=num_samples)
    if (staged.num_shards or 0) < config.min_shards:
        raise DatasetInvalid(
            f"{staged.url} holds {staged.num_shards} shards and --min_shards is {config.min_shards}; "
            "split the samples into more shards, or ask for fewer with dataset.min_shards."
        )
    return staged


def _shards(folder: Path, url: str) -> tuple[int, int]:
    from trainer.data import shards

    try:
        dataset = shards.open_dataset(folder)
    except DatasetNotFound as error:
        raise DatasetInvalid(
            f"{url} holds no file named {shards.PATTERN}; put the shards there, or set dataset.min_shards "
            "(--min_shards) to 0 if the training program reads other files."
        ) from error
    return len(dataset.shards), dataset.num_samples


def _require_room(folder: Path, num_bytes: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < num_bytes:
        raise StorageFailed(
            f"{num_bytes} bytes of the data set are missing and the file system of {folder.parent.parent} has {free} "
            "left; make room there, or give a --destination on a larger one."
        ) from OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def _require_checksum(source: Source, found: str | None, expected: str | None) -> None:
    if found != expected:
        raise DatasetInvalid(
            f"The archive {source.url} has SHA-256 {found} and --sha256 is {expected}; correct the URL or the checksum."
        )


def _manifest(config: StageConfig) -> Manifest | None:
    if config.manifest_url is None:
        return None
    return manifest.read(config.manifest_url, unsigned=config.no_sign_request, region=config.region)


def _identity(source: Source, checksums: Manifest | None) -> str:
    """A text that differs if the source, its version or its manifest does; files of one data set have the same."""
    return f"{source.url} {source.etag} {manifest.digest(checksums) if checksums is not None else ''}"


def _same(file: RemoteFile) -> RemoteFile:
    return file


if __name__ == "__main__":
    sys.exit(program.run(main, sys.argv[1:], os.environ))
