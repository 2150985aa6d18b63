"""Connections that leave the containers' network, and those that stay."""

from __future__ import annotations

import socket
import struct

import pytest
from kubetwin.node.outward import destination, has_listener, leads_out

IPV4 = struct.pack(">HH4s8x", 0, 443, bytes([203, 0, 113, 5]))
TABLE = b"""  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 1 1 0 100 0 0 10 0
   1: 0100007F:1F91 0100007F:1F92 01 00000000:00000000 00:00000000 00000000  1000        0 2 1 0 100 0 0 10 0
"""


@pytest.mark.parametrize(
    ("own", "inside", "offered", "out"),
    [
        (False, True, True, True),
        (False, False, False, True),
        (True, True, True, False),
        (True, True, False, False),
        (True, False, True, True),
        (True, False, False, False),
    ],
)
def test_other_machines_are_outside_and_ports_of_this_one_where_no_pod_listens_and_its_user_does(
    own: bool, inside: bool, offered: bool, out: bool
) -> None:
    address = (socket.AF_INET, bytes([127, 0, 0, 1]), 8080)
    answered = leads_out(address, is_own=lambda _: own, is_inside=lambda _: inside, is_offered=lambda _: offered)
    assert answered == out


def test_a_destination_is_read_from_an_address_of_either_version() -> None:
    raw = struct.pack("H", socket.AF_INET) + IPV4[2:]
    assert destination(raw) == (socket.AF_INET, bytes([203, 0, 113, 5]), 443)
    six = struct.pack("=H", socket.AF_INET6) + struct.pack(">HI16sI", 53, 0, bytes(15) + b"\1", 0)
    assert destination(six) == (socket.AF_INET6, bytes(15) + b"\1", 53)


@pytest.mark.parametrize("raw", [b"", b"\2", struct.pack("H", socket.AF_UNIX) + b"/run/socket", b"\x0a\0\0\1"])
def test_what_is_no_address_of_the_internet_is_none(raw: bytes) -> None:
    assert destination(raw) is None


def test_a_port_has_a_listener_if_a_socket_waits_there_that_belongs_to_one_of_the_users() -> None:
    assert has_listener(TABLE, 8080)
    assert has_listener(TABLE, 8080, users=frozenset({0, 1000}))
    assert not has_listener(TABLE, 8080, users=frozenset({0, 1001}))
    assert not has_listener(TABLE, 8081), "it is connected"
    assert has_listener(TABLE, 8081, connected=False)
    assert not has_listener(TABLE, 8082), "it is the other end"
