"""Request bodies in protobuf; integration/test_kubectl.py shows that they are read as kubectl writes them."""

from __future__ import annotations

import pytest
from kubetwin.model.protobuf import NotProtobuf, parse_protobuf
from kubetwin.model.protobuf_fields import MESSAGES


def varint(value: int) -> bytes:
    return bytes([value]) if value < 0x80 else bytes([value & 0x7F | 0x80]) + varint(value >> 7)


def field(number: int, value: bytes | str | int) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def body(kind: str, *fields: bytes, version: str = "v1") -> bytes:
    type_meta = field(1, version) + field(2, kind)
    return b"k8s\x00" + field(1, type_meta) + field(2, b"".join(fields)) + field(3, "") + field(4, "")


METADATA = field(1, field(1, "c") + field(2, "") + field(8, b"") + field(11, field(1, "app") + field(2, "x")))


def test_maps_texts_bytes_and_flags_are_read_and_empty_fields_are_left_out() -> None:
    data, secret = field(2, field(1, "a") + field(2, "1")), field(3, field(1, "b") + field(2, b"\xff"))
    assert parse_protobuf(body("ConfigMap", METADATA, data, secret, field(4, 1))) == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "c", "labels": {"app": "x"}},
        "data": {"a": "1"},
        "binaryData": {"b": "/w=="},
        "immutable": True,
    }


def test_lists_keep_empty_texts_and_numbers_may_be_negative() -> None:
    rule = field(1, "get") + field(2, "") + field(3, "pods")
    role = parse_protobuf(body("Role", METADATA, field(2, rule), version="rbac.authorization.k8s.io/v1"))
    assert role["rules"] == [{"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}]
    priority = parse_protobuf(body("PriorityClass", METADATA, field(2, 2**64 - 5)))
    assert priority["value"] == -5


def test_the_status_that_clients_write_is_ignored() -> None:
    assert "status" not in parse_protobuf(body("Namespace", METADATA, field(3, field(1, "Active"))))


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b'{"kind":"ConfigMap"}', "does not appear to be a protobuf message"),
        (body("Widget"), "Widget is not known in this form"),
        (body("ConfigMap", METADATA, field(77, "new")), "field 77 of ConfigMap is not known in this form"),
        (b"k8s\x00\x0a\x7f", "unexpected EOF"),
        (b"k8s\x00\x0d\x00\x00\x00\x00", "illegal wireType 5"),
        (body("ConfigMap", field(1, 5)), "wrong wireType"),
    ],
)
def test_messages_that_cannot_be_read_completely_are_refused(data: bytes, sentence: str) -> None:
    with pytest.raises(NotProtobuf, match=sentence):
        parse_protobuf(data)


def test_every_field_is_of_a_type_that_is_known() -> None:
    plain = {"text", "number", "flag", "bytes", "quantity", "either", "ignored"}
    fields = [field for message in MESSAGES.values() for field in message.values()]
    kinds = {field.partition(":")[2].removeprefix("[]").removeprefix("{}") for field in fields}
    assert kinds <= plain | set(MESSAGES)


def test_a_token_may_be_bound_to_an_object() -> None:
    bound = field(1, "Pod") + field(3, "p")
    request = parse_protobuf(
        body("TokenRequest", METADATA, field(2, field(3, bound)), version="authentication.k8s.io/v1")
    )
    assert request["spec"] == {"boundObjectRef": {"kind": "Pod", "name": "p"}}
