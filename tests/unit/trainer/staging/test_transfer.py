"""Ranges arrive whole and in order, whatever the network does."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler
from typing import Any

import pytest

from tests.unit.trainer.staging.object_server import ObjectServer, Read
from trainer.runtime.errors import DatasetNotFound, StorageFailed
from trainer.staging import transfer
from trainer.staging.source import RemoteFile, open_source
from trainer.staging.transfer import Range, Transfer, ranges_of

CONTENT = random.Random(0).randbytes(300_000)


@pytest.fixture(autouse=True)
def small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "RANGE_BYTES", 10_000)
    monkeypatch.setattr(transfer, "FIRST_PAUSE_SECONDS", 0.0)


@pytest.fixture
def file(server: ObjectServer) -> RemoteFile:
    server.objects["corpus.tar"] = CONTENT
    return open_source("s3://datasets/corpus.tar", unsigned=False, region=None, sha256=None).files[0]


def reader(**more: Any) -> Transfer:
    return Transfer(encrypted=False, region="us-east-1", renew=lambda file: file, **more)


def fetched(file: RemoteFile) -> bytes:
    return b"".join(chunk for _, chunks in reader().fetch(ranges_of(file)) for chunk in chunks)


def test_all_ranges_arrive_in_order_and_signed(server: ObjectServer, file: RemoteFile) -> None:
    assert fetched(file) == CONTENT
    assert len(server.reads) == 30
    assert all(server.authorized)


def test_of_what_is_complete_nothing_is_read(server: ObjectServer, file: RemoteFile) -> None:
    before = len(server.reads)
    assert list(reader().fetch([])) == []
    assert len(server.reads) == before


def test_no_range_is_read_further_ahead_than_there_is_room(server: ObjectServer, file: RemoteFile) -> None:
    answers = reader(bytes_in_flight=50_000).fetch(ranges_of(file))
    for taken in range(1, 11):
        asked, _ = next(answers)
        assert max(read.end for read in server.reads) <= asked.start + 50_000, taken
    answers.close()


def test_a_connection_that_breaks_is_taken_up_again(server: ObjectServer, file: RemoteFile) -> None:
    broken: set[Read] = set()

    def hang_up_once(read: Read, handler: BaseHTTPRequestHandler) -> bool:
        first = read not in broken and read.start % 3 == 0
        broken.add(read)
        if first:
            handler.hang_up()  # type: ignore[attr-defined]
        return first

    server.misbehave = hang_up_once
    assert fetched(file) == CONTENT


def test_an_answer_that_ends_early_is_asked_for_again(server: ObjectServer, file: RemoteFile) -> None:
    seen: set[Read] = set()

    def cut_short_once(read: Read, handler: BaseHTTPRequestHandler) -> bool:
        if read.start != 20_000 or read in seen:
            return False
        seen.add(read)
        handler.send_response(206)
        handler.send_header("Content-Length", "10000")
        handler.send_header("Content-Range", f"bytes 20000-29999/{len(CONTENT)}")
        handler.end_headers()
        handler.wfile.write(CONTENT[20_000:24_000])
        handler.wfile.flush()
        handler.hang_up()  # type: ignore[attr-defined]
        return True

    server.misbehave = cut_short_once
    assert fetched(file) == CONTENT
    assert seen


def test_a_server_that_falls_silent_is_asked_again(
    server: ObjectServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "STALLED_SECONDS", 0.5)
    over, seen = threading.Event(), set()

    def silent_once(read: Read, handler: BaseHTTPRequestHandler) -> bool:
        if read.start != 0 or read in seen:
            return False
        seen.add(read)
        over.wait(60)
        handler.hang_up()  # type: ignore[attr-defined]
        return True

    server.misbehave = silent_once
    try:
        assert fetched(file) == CONTENT
    finally:
        over.set()
    assert seen


def test_reading_that_is_given_up_waits_for_no_answer(server: ObjectServer, file: RemoteFile) -> None:
    over = threading.Event()

    def hold_all_but_the_first(read: Read, _handler: BaseHTTPRequestHandler) -> bool:
        if read.start > 0:
            over.wait(60)
        return False

    server.misbehave = hold_all_but_the_first
    answers = reader().fetch(ranges_of(file))
    next(answers)
    began = time.monotonic()
    try:
        answers.close()
        assert time.monotonic() - began < transfer.STALLED_SECONDS / 2
    finally:
        over.set()


def test_a_network_that_stays_broken_is_named(
    server: ObjectServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer, "ATTEMPTS", 2)
    server.misbehave = lambda _read, handler: handler.hang_up() or True  # type: ignore[attr-defined]
    with pytest.raises(StorageFailed, match="broke 2 times at byte 0"):
        fetched(file)


def test_each_pause_before_another_attempt_is_twice_as_long(
    server: ObjectServer, file: RemoteFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    over = threading.Event()
    monkeypatch.setattr(transfer, "FIRST_PAUSE_SECONDS", 0.5)
    monkeypatch.setattr(transfer, "ATTEMPTS", 4)
    monkeypatch.setattr(transfer, "STALLED_SECONDS", 0.2)
    monkeypatch.setattr(transfer.time, "sleep", pauses.append)
    server.misbehave = lambda _read, _handler: over.wait(60)
    try:
        with pytest.raises(StorageFailed, match=r"broke 4 times at byte 0 \(nothing came for 0 s\)"):
            list(reader().fetch([Range(file, 0, 4)]))
    finally:
        over.set()
    assert pauses == [0.5, 1.0, 2.0]


def test_an_object_that_was_replaced_meanwhile_is_not_mixed_up(server: ObjectServer, file: RemoteFile) -> None:
    answers = reader(bytes_in_flight=20_000).fetch(ranges_of(file))
    next(answers)
    server.objects["corpus.tar"] = CONTENT[::-1]
    with pytest.raises(DatasetNotFound, match="was replaced while"):
        list(answers)


def test_a_server_that_gives_everything_for_a_range_is_named() -> None:
    url = "https://data.example/a"
    asked = Range(RemoteFile(name="a", url=url, address=url, size=9, etag=None), 0, 4)
    with pytest.raises(DatasetNotFound) as refused:
        transfer._require_ranged(asked, 200, [])
    assert str(refused.value).startswith(f"{url} gave everything when asked for bytes 0 to 4 of 9: it was replaced")
    with pytest.raises(DatasetNotFound, match="gave bytes 0-3/8 when asked for"):
        transfer._require_ranged(asked, 206, [("Content-Range", "bytes 0-3/8")])
    transfer._require_ranged(asked, 206, [("Content-Range", "bytes 0-3/9")])
    transfer._require_ranged(asked, 503, [])


def test_without_an_etag_another_size_tells_that_a_file_was_replaced(server: ObjectServer, file: RemoteFile) -> None:
    answers = reader(bytes_in_flight=20_000).fetch(ranges_of(replace(file, etag=None)))
    next(answers)
    server.objects["corpus.tar"] = CONTENT[:-1]
    with pytest.raises(DatasetNotFound, match="was replaced while"):
        list(answers)


def test_a_role_that_may_not_read_is_named(server: ObjectServer, file: RemoteFile) -> None:
    server.misbehave = lambda _read, handler: handler.refuse(403, "AccessDenied") or True  # type: ignore[attr-defined]
    with pytest.raises(DatasetNotFound, match=r"^s3://datasets/corpus\.tar may not be read.*s3:GetObject"):
        fetched(file)


FAULTS = """
import resource
from trainer.staging import transfer
{first}
def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
def read(): [b"x" * transfer.RANGE_BYTES for _ in range(transfer.BYTES_IN_FLIGHT // transfer.RANGE_BYTES)]
read()
before = faults()
for _ in range(5): read()
print(faults() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="only the C library of Linux is told to keep its memory")
def test_memory_of_ranges_that_were_taken_is_there_for_the_next() -> None:
    def page_faults(first: str) -> int:
        program = FAULTS.format(first=first)
        return int(subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout)

    assert page_faults("transfer._keep_freed_memory()") < page_faults("") / 10
