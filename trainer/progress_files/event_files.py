"""Scalars in TensorBoard's event files, read as they grow.

A file is a sequence of TFRecords: length (8 bytes, little endian), its masked CRC-32C (4), the record, the record's
masked CRC-32C (4) (tensorflow/core/lib/io/record_writer.h). A record is an `Event` in protobuf's wire format
(tensorboard/compat/proto/event.proto, summary.proto, tensor.proto).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

FILES = "*tfevents*"
"""Glob of event files' names."""

HEADER_BYTES, FOOTER_BYTES = 12, 4

LARGEST_RECORD_BYTES = 64 << 20
"""Records beyond this size are taken for a damaged file."""

LARGEST_SCALAR_BYTES = 1 << 16
"""Larger records are images, graphs or histograms, and are not looked into."""

VARINT, FIXED64, LENGTH_DELIMITED, FIXED32 = 0, 1, 2, 5
"""Wire types (protobuf's documentation, "Encoding")."""

DT_FLOAT, DT_DOUBLE = 1, 2
"""`DataType` of a tensor (types.proto)."""


@dataclass(frozen=True)
class Scalar:
    """One value of one tag."""

    step: int
    tag: str
    value: float
    wall_time: float
    """Seconds since 1970."""


class EventFile:
    """One file, read from where it was left."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new_scalars(self) -> Iterator[Scalar]:
        """Scalars of the records that are complete by now. A damaged record ends the reading, also the next time.

        Raises:
            OSError: If the file cannot be read.
        """
        with self._path.open("rb") as file:
            file.seek(self._offset)
            while (record := _next_record(file)) is not None:
                self._offset = file.tell()
                yield from parse_scalars(record)


def parse_scalars(record: bytes) -> Iterator[Scalar]:
    """The scalars of an event; none where it is another one, or no event at all."""
    try:
        event = dict(_fields(record))
        time, step, summary = event.get(1), event.get(2, 0), event.get(5)
        wall_time = struct.unpack("<d", time)[0] if isinstance(time, bytes) else 0.0
        if not isinstance(step, int) or not isinstance(summary, bytes):
            return
        for number, value in _fields(summary):
            if number == 1 and isinstance(value, bytes):
                yield from _scalar(value, step, wall_time)
    except (ValueError, IndexError, struct.error):
        return


def _scalar(message: bytes, step: int, wall_time: float) -> Iterator[Scalar]:
    fields = dict(_fields(message))
    tag, simple, tensor = fields.get(1), fields.get(2), fields.get(8)
    value: float | None = None
    if isinstance(simple, bytes) and len(simple) == 4:
        value = struct.unpack("<f", simple)[0]
    elif isinstance(tensor, bytes):
        value = _tensor_value(dict(_fields(tensor)))
    if isinstance(tag, bytes) and value is not None and step < 1 << 63:
        yield Scalar(step, tag.decode(errors="replace"), value, wall_time)


def _tensor_value(tensor: dict[int, int | bytes]) -> float | None:
    """The value of a tensor of one float or double; None for others."""
    form, place = ("<d", 6) if tensor.get(1) == DT_DOUBLE else ("<f", 5)
    if tensor.get(1) not in (DT_FLOAT, DT_DOUBLE):
        return None
    for content in (tensor.get(4), tensor.get(place)):
        if isinstance(content, bytes) and len(content) == struct.calcsize(form):
            return float(struct.unpack(form, content)[0])
    return None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: an int of a varint, else its bytes.

    Raises:
        ValueError, IndexError: If the bytes are not a message.
    """
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire_type = key >> 3, key & 7
        if wire_type == VARINT:
            value, at = _varint(message, at)
            yield number, value
            continue
        if wire_type == LENGTH_DELIMITED:
            length, at = _varint(message, at)
        elif wire_type in (FIXED64, FIXED32):
            length = 8 if wire_type == FIXED64 else 4
        else:
            raise ValueError(f"wire type {wire_type}")
        if at + length > len(message):
            raise ValueError("cut off")
        yield number, message[at : at + length]
        at += length


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        byte = message[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
    raise ValueError("a number of more than ten bytes")


def _next_record(file: BinaryIO) -> bytes | None:
    """The next record; None if it is not complete, or damaged. Empty for one that is too large for scalars."""
    header = file.read(HEADER_BYTES)
    if len(header) < HEADER_BYTES or _masked_crc(header[:8]) != struct.unpack("<I", header[8:])[0]:
        return None
    (length,) = struct.unpack("<Q", header[:8])
    if length > LARGEST_RECORD_BYTES:
        return None
    record, footer = file.read(length), file.read(FOOTER_BYTES)
    if len(footer) < FOOTER_BYTES:
        return None
    if length > LARGEST_SCALAR_BYTES:
        return b""
    return record if _masked_crc(record) == struct.unpack("<I", footer)[0] else None


def _crc_table() -> list[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _crc_table()


def _masked_crc(content: bytes) -> int:
    """CRC-32C, rotated and shifted by a constant (crc32c.h: a CRC of data that has CRCs in it is weak)."""
    crc = 0xFFFFFFFF
    for byte in content:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF
