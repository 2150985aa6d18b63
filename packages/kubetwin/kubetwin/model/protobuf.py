"""Conversion of request bodies from Kubernetes' protobuf form to JSON. Answers are always JSON.

kubectl's typed commands send no other form. Messages and fields that the table lacks are refused, never dropped.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

from kubetwin.model.errors import Object
from kubetwin.model.protobuf_fields import MESSAGES

MEDIA_TYPE = "application/vnd.kubernetes.protobuf"
_MAGIC = b"k8s\x00"
_SCALARS = ("number", "flag")
_EMPTY: tuple[Any, ...] = ("", {}, [], None)


class NotProtobuf(ValueError):
    """The bytes are not a Kubernetes object in protobuf, or hold an unknown message or field."""


def parse_protobuf(data: bytes) -> Object:
    """The object in a body.

    Raises:
        NotProtobuf: If it cannot be read completely.
    """
    if not data.startswith(_MAGIC):
        raise NotProtobuf("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    envelope = _message("Unknown", data[len(_MAGIC) :])
    kind = envelope.get("typeMeta", {}).get("kind", "")
    if kind not in MESSAGES:
        raise NotProtobuf(f"{kind} is not known in this form, send it as JSON")
    return {**envelope["typeMeta"], **_message(kind, base64.b64decode(envelope.get("raw", "")))}


def _message(name: str, data: bytes) -> Object:
    fields = MESSAGES[name]
    found: Object = {}
    for number, value in _fields(data):
        if number not in fields:
            if value not in (0, b""):  # Go writes fields that are empty, too
                raise NotProtobuf(f"field {number} of {name} is not known in this form, send it as JSON")
            continue
        key, _, kind = fields[number].partition(":")
        if kind != "ignored":
            _add(found, key, kind, value)
    return found


def _add(message: Object, key: str, kind: str, value: int | bytes) -> None:
    if kind.startswith("[]"):
        message.setdefault(key, []).append(_value(kind[2:], value))
    elif kind.startswith("{}"):
        entry = dict(_fields(_bytes(value)))
        text = _bytes(entry.get(1, b"")).decode()
        message.setdefault(key, {})[text] = _value(kind[2:], entry.get(2, b""))
    elif (shown := _value(kind, value)) not in _EMPTY:
        message[key] = shown


def _value(kind: str, value: int | bytes) -> Any:
    if kind in _SCALARS:
        if not isinstance(value, int):
            raise NotProtobuf(f"proto: wrong wireType for a {kind}")
        signed = value - 2**64 if value >= 2**63 else value
        return bool(value) if kind == "flag" else signed
    data = _bytes(value)
    if kind == "text":
        return data.decode()
    if kind == "bytes":
        return base64.b64encode(data).decode()
    if kind == "quantity":
        return _message("Quantity", data).get("string", "0")
    if kind == "either":
        parts = _message("IntOrString", data)
        return parts.get("strVal", "") if parts.get("type") else parts.get("intVal", 0)
    return _message(kind, data)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise NotProtobuf("proto: wrong wireType for a text or message")
    return value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Number and value of each field: a whole number, or the bytes of a field with a length."""
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        number, wire_type = tag >> 3, tag & 7
        if wire_type == 0:
            value, place = _varint(data, place)
            yield number, value
        elif wire_type == 2:
            length, place = _varint(data, place)
            if place + length > len(data):
                raise NotProtobuf("unexpected EOF")
            yield number, data[place : place + length]
            place += length
        else:
            raise NotProtobuf(f"proto: illegal wireType {wire_type}")


def _varint(data: bytes, place: int) -> tuple[int, int]:
    result = shift = 0
    while True:
        if place >= len(data) or shift > 63:
            raise NotProtobuf("unexpected EOF")
        byte = data[place]
        result |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not byte & 0x80:
            return result, place
