"""Whether a file has been written to its end, judged by its content.

The format is found by the first bytes, since programs give their files any name. Only a file's beginning, its end and
its index are read, so that the time depends on the number of files and not on their size; compressed streams without
an index are read up to a limit. Nothing here needs torch or NumPy.
"""

from __future__ import annotations

import ast
import json
import math
import os
import re
import struct
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from trainer.checkpoints import compressed, pickles

TORCH = (".pt", ".pth", ".ckpt", ".bin")
"""Endings of files that `torch.save` writes."""

NEVER_EMPTY = (
    *(*TORCH, ".safetensors", ".json", ".npz", ".npy", ".h5", ".hdf5", ".keras", ".pkl", ".distcp", ".tar", ".gz"),
    *(".pdparams", ".pdopt", ".msgpack", ".zst", ".index", ".onnx", ".params", ".th", ".t7", ".model", ".states"),
)
"""Endings of files that have at least one byte."""

MAY_BE_ZEROS = (".bin", ".params", ".states", ".model")
"""Endings of files of raw numbers, which may all be zero."""

FIRST = 512
"""Bytes of a file that show its format."""

MAX_HEADER = 100_000_000
"""Largest header of a safetensors file, in bytes, as the format's own reader has it."""

MAX_JSON = 64 * 1024 * 1024
"""Largest JSON document that is parsed, in bytes; of a longer one, only the last character is looked at."""

MAX_MEMBERS = 100_000
"""Members of a tar archive that are read."""

TABLE_MAGIC = bytes.fromhex("57fb808b247547db")
"""Last bytes of a table of TensorFlow, such as the index of a checkpoint (tensorflow/core/lib/io/format.h)."""


def is_whole(file: Path) -> bool | None:
    """Whether the file has its end; None for a format whose end is not known.

    Raises:
        OSError: If the file cannot be read.
    """
    with file.open("rb") as content:
        first = content.read(FIRST)
    if _has_no_begin(first, file.suffix):
        return False
    known = next((each for each in FORMATS if each.begins(first, file)), None)
    return known.ends(file) if known else None


def _has_no_begin(first: bytes, suffix: str) -> bool:
    """Whether the first bytes of a format are missing: of an empty file, of zeros on the disk, of a few bytes."""
    if suffix in NEVER_EMPTY and not first.strip(b"\0"):
        return not first or suffix not in MAY_BE_ZEROS
    begins = (each.magic for each in FORMATS)
    return bool(first) and any(len(first) < len(begin) and begin.startswith(first) for begin in begins)


def _safetensors_is_whole(file: Path) -> bool:
    """Whether the file is as long as its header says."""
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
        except (ValueError, TypeError, LookupError, AttributeError, RecursionError):
            return False
    return all(isinstance(end, int) for end in ends) and file.stat().st_size == 8 + length + max(ends, default=0)


def _zip_is_whole(file: Path) -> bool:
    """Whether the archive's directory, which is written last, is there."""
    try:
        with zipfile.ZipFile(file):
            return True
    except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error):
        return False


def _hdf5_is_whole(file: Path) -> bool | None:
    """Whether the file is as long as its superblock says, and no process has it open for writing.

    HDF5 File Format Specification 3.0, II.A: versions 0 and 1 have their addresses from byte 24 or 28 on, 2 and 3 from
    byte 12; the end of the file is the third.
    """
    first, size = _first(file), file.stat().st_size
    version = first[8] if len(first) > 8 else 255
    if len(first) < 64 or version > 3:
        return False if len(first) < 64 else None
    width, begin = (first[13], 24 + 4 * version) if version < 2 else (first[9], 12)
    end = int.from_bytes(first[begin + 2 * width : begin + 3 * width], "little")
    is_open_for_writing = version == 3 and first[11] & 0b101 != 0
    return size >= end and not is_open_for_writing


def _array_is_whole(file: Path) -> bool | None:
    """Whether an .npy file is as long as its header says (numpy.lib.format); None for arrays of objects or records."""
    with file.open("rb") as content:
        begin = content.read(8)
        width = 2 if begin[6:7] == b"\x01" else 4
        length = int.from_bytes(content.read(width), "little")
        text = content.read(min(length, MAX_HEADER))
    if len(begin) < 8 or len(text) < length:
        return False
    try:
        header = ast.literal_eval(text.decode("latin1").strip())
        kind = re.match(r"[<>|=]?([a-zA-Z])(\d+)", header["descr"])
        elements = math.prod(header["shape"])
    except (ValueError, SyntaxError, TypeError, LookupError, RecursionError, MemoryError):
        return None
    if kind is None or kind[1] == "O":
        return None
    bytes_each = int(kind[2]) * (4 if kind[1] == "U" else 1)
    size = file.stat().st_size
    return bool(size >= 8 + width + length + elements * bytes_each)


def _tar_is_whole(file: Path) -> bool | None:
    """Whether all members are there, and the block of zeros after them; None for more members than are read."""
    try:
        with tarfile.open(file, "r:") as archive:
            if sum(1 for _ in zip(archive, range(MAX_MEMBERS), strict=False)) == MAX_MEMBERS:
                return None
            end = archive.offset
    except (tarfile.TarError, ValueError, EOFError):
        return False
    with file.open("rb") as content:
        content.seek(end)
        zeros = content.read(tarfile.BLOCKSIZE)
    return len(zeros) == tarfile.BLOCKSIZE and not zeros.strip(b"\0")


def _json_is_whole(file: Path) -> bool:
    if file.stat().st_size > MAX_JSON:
        return last_bytes(file, 64).strip()[-1:] in (b"}", b"]")
    try:
        json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return False
    return True


def _database_is_whole(file: Path) -> bool | None:
    """Whether a file of OCDBT, the database of TensorStore, is as long as its header says
    (tensorstore/kvstore/ocdbt/format/codec_util.cc); None for one without the whole header."""
    first = _first(file)
    return int.from_bytes(first[4:12], "little") == file.stat().st_size if len(first) >= 12 else None


def _sqlite_is_whole(file: Path) -> bool | None:
    """Whether the file has the pages of its header (sqlite.org/fileformat.html, 1.3.7)."""
    first = _first(file)
    size, pages = int.from_bytes(first[16:18], "big"), int.from_bytes(first[28:32], "big")
    size = 65536 if size == 1 else size
    return len(first) >= 100 and file.stat().st_size >= size * pages


def last_bytes(file: Path, length: int) -> bytes:
    """The last bytes of a file."""
    with file.open("rb") as content:
        content.seek(max(0, os.fstat(content.fileno()).st_size - length))
        return content.read(length)


def _first(file: Path) -> bytes:
    with file.open("rb") as content:
        return content.read(FIRST)


def _ends_with(end: bytes) -> Callable[[Path], bool]:
    return lambda file: last_bytes(file, len(end)) == end


def _is_safetensors(first: bytes, file: Path) -> bool:
    """Whether the name says so, or there is the length of a header, and then the header's first key."""
    begins = len(first) > 9 and first[8:10] == b'{"' and struct.unpack("<Q", first[:8])[0] <= MAX_HEADER
    return begins or file.suffix == ".safetensors"


def _is_tar(first: bytes, file: Path) -> bool:
    return first[257:262] == b"ustar" or (file.suffix == ".tar" and len(first) < FIRST)


@dataclass(frozen=True)
class FileFormat:
    """A format: how its files begin, and how their end is found."""

    ends: Callable[[Path], bool | None]
    """Whether the file has its end; None if that cannot be said."""
    magic: bytes = b""
    """First bytes of every file; empty where another sign shows the format."""
    sign: Callable[[bytes, Path], bool] | None = None
    """Whether the first bytes, or the name, are those of the format; in place of `magic`."""

    def begins(self, first: bytes, file: Path) -> bool:
        """Whether a file has this format."""
        return self.sign(first, file) if self.sign is not None else first.startswith(self.magic)


def _named(*suffixes: str) -> Callable[[bytes, Path], bool]:
    return lambda _first, file: file.suffix in suffixes


FORMATS = (
    FileFormat(_safetensors_is_whole, sign=_is_safetensors),
    FileFormat(_zip_is_whole, b"PK"),  # torch since version 1.6, NumPy's .npz, Keras: its directory is its end
    FileFormat(_hdf5_is_whole, b"\x89HDF\r\n\x1a\n"),
    FileFormat(_array_is_whole, b"\x93NUMPY"),
    FileFormat(pickles.old_torch_is_whole, pickles.TORCH_MAGIC),
    FileFormat(pickles.is_whole, sign=lambda first, _file: pickles.begins(first)),
    FileFormat(_tar_is_whole, sign=_is_tar),
    FileFormat(compressed.gzip_is_whole, b"\x1f\x8b"),
    FileFormat(compressed.bzip2_is_whole, b"BZh"),
    FileFormat(compressed.xz_is_whole, b"\xfd7zXZ\x00"),
    FileFormat(compressed.zstandard_is_whole, b"\x28\xb5\x2f\xfd"),
    FileFormat(compressed.lz4_is_whole, b"\x04\x22\x4d\x18"),
    FileFormat(_database_is_whole, b"\x0c\xdb\x3a\x2a"),
    FileFormat(_sqlite_is_whole, b"SQLite format 3\x00"),
    FileFormat(_ends_with(b"PAR1"), b"PAR1"),
    FileFormat(_ends_with(b"ARROW1"), b"ARROW1\x00\x00"),
    FileFormat(_ends_with(TABLE_MAGIC), sign=_named(".index")),
    FileFormat(compressed.msgpack_is_whole, sign=_named(".msgpack")),
    FileFormat(_json_is_whole, sign=_named(".json")),
)
"""The formats; the first that fits counts."""
