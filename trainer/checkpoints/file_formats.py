"""Whether a file has been written to its end, judged by its content.

The format is found by the first bytes, since programs give their files any name. Nothing here needs torch or NumPy.
"""

from __future__ import annotations

import ast
import importlib
import json
import math
import re
import struct
import tarfile
import zipfile
import zlib
from pathlib import Path

from trainer.checkpoints import pickles

TORCH = (".pt", ".pth", ".ckpt", ".bin")
"""Endings of files that `torch.save` writes."""

NEVER_EMPTY = (*TORCH, ".safetensors", ".json", ".npz", ".npy", ".h5", ".hdf5", ".pkl", ".distcp", ".tar", ".gz")
"""Endings of files that have at least one byte."""

ZIP = b"PK"
"""First bytes of a zip archive: torch's format since version 1.6, and NumPy's .npz. Its directory is its end."""

HDF5 = b"\x89HDF\r\n\x1a\n"

NUMPY = b"\x93NUMPY"

COMPRESSED = {b"\x1f\x8b": "gzip", b"BZh": "bz2", b"\xfd7zXZ\x00": "lzma"}
"""Module that reads a compressed file, by the file's first bytes."""

TAR = b"ustar"
"""Bytes 257 to 261 of a tar archive."""

FIRST = 512
"""Bytes of a file that show its format."""

MAX_HEADER = 100_000_000
"""Largest header of a safetensors file, in bytes, as the format's own reader has it."""


def is_whole(file: Path) -> bool | None:
    """Whether the file has its end; None for a format whose end is not known.

    Raises:
        OSError: If the file cannot be read.
    """
    with file.open("rb") as content:
        first = content.read(FIRST)
    if _has_no_begin(first, file.suffix):
        return False
    if file.suffix == ".safetensors" or _begins_like_safetensors(first):
        return _safetensors_is_whole(file)
    if first.startswith(ZIP):
        return _zip_is_whole(file)
    if first.startswith(HDF5):
        return _hdf5_is_whole(first, file.stat().st_size)
    if first.startswith(NUMPY):
        return _array_is_whole(file)
    if first.startswith(pickles.TORCH_MAGIC):
        return pickles.old_torch_is_whole(file)
    if pickles.begins(first):
        return pickles.is_whole(file)
    if first[257:262] == TAR or (file.suffix == ".tar" and len(first) < FIRST):
        return _tar_is_whole(file)
    for magic, module in COMPRESSED.items():
        if first.startswith(magic):
            return _compressed_is_whole(file, module)
    return _json_is_whole(file) if file.suffix == ".json" else None


def _has_no_begin(first: bytes, suffix: str) -> bool:
    """Whether the first bytes of a format are missing: of an empty file, of zeros on the disk, of a few bytes."""
    if suffix in NEVER_EMPTY and not first.strip(b"\0"):
        return not first or suffix != ".bin"  # raw numbers may be zeros
    begins = (ZIP + b"\x03\x04", HDF5, NUMPY, pickles.TORCH_MAGIC, *COMPRESSED)
    return bool(first) and any(len(first) < len(begin) and begin.startswith(first) for begin in begins)


def _begins_like_safetensors(first: bytes) -> bool:
    """Whether there is the length of a header, and then the header's first key."""
    return len(first) > 9 and first[8:10] == b'{"' and struct.unpack("<Q", first[:8])[0] <= MAX_HEADER


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


def _hdf5_is_whole(first: bytes, size: int) -> bool | None:
    """Whether the file is as long as its superblock says, and no process has it open for writing.

    HDF5 File Format Specification 3.0, II.A: versions 0 and 1 have their addresses from byte 24 or 28 on, 2 and 3 from
    byte 12; the end of the file is the third.
    """
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


def _tar_is_whole(file: Path) -> bool:
    """Whether all members are there, and the block of zeros after them."""
    try:
        with tarfile.open(file, "r:") as archive:
            archive.getmembers()
            end = archive.offset
    except (tarfile.TarError, ValueError, EOFError):
        return False
    with file.open("rb") as content:
        content.seek(end)
        zeros = content.read(tarfile.BLOCKSIZE)
    return len(zeros) == tarfile.BLOCKSIZE and not zeros.strip(b"\0")


def _compressed_is_whole(file: Path, module: str) -> bool | None:
    """Whether the stream ends, with its checksum where the format has one; None if this Python cannot read it."""
    try:
        opened = importlib.import_module(module).open(file, "rb")
    except ImportError:
        return None
    try:
        with opened as content:
            while content.read(1 << 20):
                pass
    except (EOFError, zlib.error, OSError, ValueError, MemoryError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        return False
    except Exception as error:
        if type(error).__name__ == "LZMAError":  # the module may be missing, so its error cannot be named
            return False
        raise
    return True


def _json_is_whole(file: Path) -> bool:
    try:
        json.loads(file.read_bytes())
    except (ValueError, RecursionError):
        return False
    return True
