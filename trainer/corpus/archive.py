"""The data set as one file like WikiCorpus's, a folder of shards in a tar file, or as the bare folder."""

from __future__ import annotations

import gzip
import io
import shutil
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from trainer.runtime.files import written_whole


def write(out: Path, folder: str, shards: Sequence[Path], vocabulary: Sequence[str]) -> int:
    """Pack shards and vocabulary, whole or not at all.

    Args:
        out: A .tar or .tar.gz file; a name without a suffix becomes a folder.
        folder: Of the archive's members.
        shards: HDF5 files.
        vocabulary: Tokens in the order of their ids.

    Returns:
        The size in bytes.
    """
    tokens = "".join(f"{token}\n" for token in vocabulary).encode()
    if not out.suffix:
        return _write_folder(out, shards, tokens)
    with written_whole(out) as file, _tar(file, compressed=out.suffix == ".gz") as archive:
        _add(archive, f"{folder}/vocab.txt", tokens)
        for shard in shards:
            _add(archive, f"{folder}/{shard.name}", shard.read_bytes())
    return out.stat().st_size


def _write_folder(out: Path, shards: Sequence[Path], tokens: bytes) -> int:
    for path in (*shards, None):
        with written_whole(out / (path.name if path else "vocab.txt")) as file:
            if path is None:
                file.write(tokens)
            else:
                with path.open("rb") as shard:
                    shutil.copyfileobj(shard, file)
    return len(tokens) + sum(shard.stat().st_size for shard in shards)


@contextmanager
def _tar(file: BinaryIO, *, compressed: bool) -> Iterator[tarfile.TarFile]:
    """A tar file without time stamps, so that the same content is the same file."""
    if not compressed:
        with tarfile.open(fileobj=file, mode="w") as archive:
            yield archive
        return
    with (
        gzip.GzipFile(fileobj=file, mode="wb", filename="", mtime=0) as stream,
        tarfile.open(fileobj=stream, mode="w") as archive,
    ):
        yield archive


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))
